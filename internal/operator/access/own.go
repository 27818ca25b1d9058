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

// OwnRight reports whether the manager, whose client is c, may do this. Every user may ask that of themselves. An error means that the
// API server did not answer, and is never a refusal.
func OwnRight(ctx context.Context, c client.Client, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("review the operator's right to %s %s in namespace %s: %w", what.Verb, what.Resource, what.Namespace, err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

// AwaitOwnRights waits until the manager, whose client is c, may create Jobs in its own namespace. OLM creates the
// RoleBinding and the Deployment at the same time, so the RoleBinding may come up to timeout later. Without the right a
// capture would be admitted and never run, so the error says how to grant it. If the API server does not answer, the error
// is the failure of the review.
func AwaitOwnRights(ctx context.Context, c client.Client, namespace string, timeout time.Duration) error {
	refused := false
	err := wait.PollUntilContextTimeout(ctx, ownRetry, timeout, true, func(ctx context.Context) (bool, error) {
		allowed, err := OwnRight(ctx, c, authorizationv1.ResourceAttributes{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs", Namespace: namespace})
		if err == nil {
			refused = !allowed
		}
		return allowed, err
	})
	if !refused || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("the manager may not create Jobs in its namespace %s, because the Role %s is not bound to it there: install Sonde into the namespace %s, or bind the Role (kubectl create rolebinding sonde-here -n %s --role=%s --serviceaccount=%s:%s)",
		namespace, RoleManager, DefaultNamespace, namespace, RoleManager, namespace, RoleManager)
}
