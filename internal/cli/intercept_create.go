package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// mayEndIntercepts returns an error if the user may not delete InterceptRequests: the command could not end the intercept. If the API server
// does not say, the command goes on.
func mayEndIntercepts(ctx context.Context, conn *connection, name string, inHub bool) error {
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: conn.namespace, Verb: "delete", Group: v1alpha1.GroupVersion.Group, Resource: kind.Intercept.Resource, Name: name,
		},
	}}
	if err := conn.client.Create(ctx, &review); err != nil || review.Status.Allowed {
		return nil //nolint:nilerr // see above
	}
	role := "sonde-intercept"
	if inHub { // the right to intercept is one in the target's namespace; a hub takes only rights on InterceptRequests
		role = "sonde-edit"
	}
	return fmt.Errorf("you may not delete InterceptRequests in namespace %s, so this command could not end the intercept: ask an admin for the ClusterRole %s there", conn.namespace, role)
}

// create creates the InterceptRequest. If the answer is lost, it deletes the InterceptRequest, which would otherwise keep its port and
// conditions until it expires, under a name that the user may not know.
func (c *interceptCommand) create(ctx context.Context, conn *connection, o *v1alpha1.InterceptRequest, key tunnel.PublicKey) error {
	var sent atomic.Bool
	err := conn.client.Create(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }, // not if the API server cannot be reached
	}), o)
	if err == nil || !sent.Load() || refused(err) {
		return err
	}
	name, uerr := removeByKey(ctx, conn, key)
	what := "The answer to the creation of the InterceptRequest was lost"
	switch {
	case uerr == nil && (name != "" || storedNothing(err)):
		return err
	case uerr == nil: // for example, a webhook has not answered yet
		what += ", and it may be created later"
	case storedNothing(err):
		what = "The API server failed, and the InterceptRequest may exist: " + clause(uerr)
	default:
		what += ", and it may exist: " + clause(uerr)
	}
	// It is printed here: an error is not, after an interrupt.
	fmt.Fprintln(c.plugin.streams.ErrOut, what)
	if name = cmp.Or(name, c.request.Name); name == "" { // without a name, down would end all that the user has
		name = "NAME"
		fmt.Fprintf(c.plugin.streams.ErrOut, "To find it:\n  %s\n", c.plugin.commandLine("intercepts", conn.namespace))
	}
	fmt.Fprintf(c.plugin.streams.ErrOut, "To end it:\n  %s\n", c.plugin.commandLine("down "+name, conn.namespace))
	return err
}

// storedNothing reports whether the API server, or a webhook, has failed before it stored anything. A timeout of etcd answers 500, too, but
// without this reason, and what was asked may be stored later. An answer that is no Status, such as 502 of a load balancer, says nothing.
func storedNothing(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonInternalError && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refused reports whether the API server says that it has not carried out a request.
func refused(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code >= http.StatusBadRequest && status.ErrStatus.Code < http.StatusInternalServerError
}

// removeByKey deletes the InterceptRequest with a client's key, if there is one, and returns its name. An interrupt does not cancel that,
// but the plugin ends soon after one.
func removeByKey(ctx context.Context, conn *connection, key tunnel.PublicKey) (name string, err error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(exitTimeout-time.Second, cancel) })()
	var list v1alpha1.InterceptRequestList
	if err := conn.client.List(ctx, &list, client.InNamespace(conn.namespace)); err != nil {
		return "", fmt.Errorf("list InterceptRequests: %w", err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.ClientKey == string(key) {
			_, err := removeIntercept(ctx, conn.client, o)
			return o.Name, err
		}
	}
	return "", nil
}
