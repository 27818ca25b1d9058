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

// DefaultNamespace is the namespace of an install by default. The RoleBindings of config/ and of the bundle grant the
// manager's Role to a ServiceAccount there.
const DefaultNamespace = "sonde-system"

// RoleManager names the manager's Role in its own namespace, and its ServiceAccount.
const RoleManager = "sonde-manager"

// ownRetry is the interval between the reviews of AwaitOwnRights.
const ownRetry = 250 * time.Millisecond

// AwaitOwnRights waits until the manager, whose client is c, may create Jobs in its own namespace. OLM creates the
// RoleBinding and the Deployment at the same time, so the RoleBinding may come up to timeout later. Without the right a
// capture would be admitted and never run, so the error says how to grant it. If the API server does not answer, the error
// is the failure of the review.
func AwaitOwnRights(ctx context.Context, c client.Client, namespace string, timeout time.Duration) error {
	refused := false
	err := wait.PollUntilContextTimeout(ctx, ownRetry, timeout, true, func(ctx context.Context) (bool, error) {
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
	return fmt.Errorf("the manager may not create Jobs in its namespace %s, because the Role %s is not bound to it there: install Sonde into the namespace %s, or bind the Role (kubectl create rolebinding sonde-here -n %s --role=%s --serviceaccount=%s:%s)",
		namespace, RoleManager, DefaultNamespace, namespace, RoleManager, namespace, RoleManager)
}
