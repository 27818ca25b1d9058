package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultNamespace is where an install goes when nobody chooses another: to a ServiceAccount there the RoleBindings
// of kustomize's install and of the bundle give the manager's Role.
const DefaultNamespace = "sonde-system"

// RoleManager is the manager's Role in its own namespace, and the name of its ServiceAccount.
const RoleManager = "sonde-manager"

// ownRetry is how often AwaitOwnRights asks again.
const ownRetry = 250 * time.Millisecond

// AwaitOwnRights returns when the manager, as which c is logged in, may create Jobs in its own namespace. OLM makes the
// RoleBinding beside the Deployment, so that it may come a moment later: patience is how long to wait for it. An error
// says how to give the right; without it a capture would be admitted and never run. Where the API server does not
// answer, nothing is known of the rights, and the error is that of asking.
func AwaitOwnRights(ctx context.Context, c client.Client, namespace string, patience time.Duration) error {
	refused := false
	err := wait.PollUntilContextTimeout(ctx, ownRetry, patience, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs", Namespace: namespace},
		}}
		if err := c.Create(ctx, review); err != nil {
			return false, fmt.Errorf("review the manager's own rights: %w", err)
		}
		refused = !review.Status.Allowed || review.Status.Denied
		return !refused, nil
	})
	if !refused || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("the manager may not create Jobs in its namespace %s, as the Role %s is not bound to it there: install Sonde into the namespace %s, or bind the Role (kubectl create rolebinding sonde-here -n %s --role=%s --serviceaccount=%s:%s)",
		namespace, RoleManager, DefaultNamespace, namespace, RoleManager, namespace, RoleManager)
}
