package sidecar

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Rights says whether the manager may create and delete PersistentVolumeClaims and Jobs in a namespace. An error means that the
// API server did not answer, and is never a refusal.
type Rights interface {
	Allowed(ctx context.Context, namespace string) (bool, error)
}

// checkRights refuses a Pod whose volume the manager could neither create nor process.
func (h *Handler) checkRights(ctx context.Context, f *sondev1.FluentPVC, namespace string) error {
	allowed, err := h.Rights.Allowed(ctx, namespace)
	if err != nil || allowed {
		return err
	}
	return admission.Forbidden("FluentPVC %[1]s needs the operator's right to create and delete PersistentVolumeClaims and Jobs in namespace %[2]s: ask an admin of the namespace to run \"kubectl sonde fluentpvc allow -n %[2]s\", or without the plugin \"kubectl create rolebinding %[3]s -n %[2]s --clusterrole=%[3]s --serviceaccount=%[4]s:%[5]s\"",
		f.Name, namespace, access.RoleFluentPVC, h.OperatorNamespace, agentjob.ManagerServiceAccount)
}

// Bounds of the answers that OwnRights keeps.
const (
	rightsTTL  = 10 * time.Second
	maxAllowed = 1024
	// askTime bounds a question, whose answer may serve several Pods: the end of one request must not end it.
	askTime = 5 * time.Second
)

// Granted reports whether a cache has the RoleBinding of "kubectl sonde fluentpvc allow" in a namespace. false says nothing about the
// manager's rights.
type Granted func(ctx context.Context, namespace string) bool

// OwnRights finds out the manager's own rights. With the RoleBinding of "kubectl sonde fluentpvc allow" it sends no request: a review is a
// POST, which counts as a write. That RoleBinding may promise too much: it was deleted a moment ago, a cluster admin has taken rights from
// the ClusterRole, or an authorizer beside RBAC refuses them. Then the Pod is admitted, and its binding says NotPermitted, as it does when
// a right is withdrawn later. The API server checks each write itself.
//
// In every other case it asks the API server: a cluster admin may have bound the role in all namespaces, or under another name. It keeps
// the answer yes for a few seconds: the Pods of a rollout come together, and a right that is withdrawn meanwhile shows on the bindings. It
// asks again after the answer no, so that the command in the message takes effect at once. Pods of a namespace that come while it asks get
// the same answer.
type OwnRights struct {
	granted Granted
	client  client.Client
	clock   clock.PassiveClock
	allowed *cache.LRUExpireCache
	asking  singleflight.Group
}

// NewOwnRights returns an OwnRights that asks through the manager's client, unless granted says yes.
func NewOwnRights(granted Granted, c client.Client, clk clock.PassiveClock) *OwnRights {
	return &OwnRights{granted: granted, client: c, clock: clk, allowed: cache.NewLRUExpireCacheWithClock(maxAllowed, clk)}
}

// Allowed implements Rights.
func (r *OwnRights) Allowed(ctx context.Context, namespace string) (bool, error) {
	if r.granted(ctx, namespace) {
		return true, nil
	}
	if _, ok := r.allowed.Get(namespace); ok {
		return true, nil
	}
	allowed, err, _ := r.asking.Do(namespace, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		return r.ask(ctx, namespace)
	})
	return allowed.(bool), err
}

func (r *OwnRights) ask(ctx context.Context, namespace string) (bool, error) {
	asked := r.clock.Now() // the answers may show the state at the time of the question
	for _, what := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Version: "v1", Resource: "persistentvolumeclaims"},
		{Verb: "delete", Version: "v1", Resource: "persistentvolumeclaims"},
		{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs"},
		{Verb: "delete", Group: "batch", Version: "v1", Resource: "jobs"},
	} {
		what.Namespace = namespace
		if allowed, err := access.OwnRight(ctx, r.client, what); !allowed || err != nil {
			return false, err
		}
	}
	// The cache still returns an entry at the moment when it expires, so that comes a nanosecond early.
	r.allowed.Add(namespace, true, rightsTTL-r.clock.Since(asked)-1)
	return true, nil
}
