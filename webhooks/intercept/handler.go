// Package intercept admits InterceptRequests and stamps them with their requester.
package intercept

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/route"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Bounds of the InterceptRequests of a namespace: those that have not ended, and all. The manager's cache has all of them.
const (
	maxPerNamespace = 50
	maxExisting     = 500
)

// Handler admits InterceptRequests. It fails closed. It writes nothing but reviews, which the API server does not store, so a dry
// run changes nothing.
type Handler struct {
	// Live reads from the API server: a cache could be older than an admin's last change.
	Live client.Reader
	// Cache of all InterceptRequests. Two requests that are created within the moment that it lags may both be admitted; the
	// controller gives the port to the older one.
	Cache client.Reader
	// Reviews are not cached.
	Reviews access.Reviews
	// Key of the stamp.
	Key []byte
	// OperatorNamespace holds no requests and no targets.
	OperatorNamespace string
	Clock             clock.PassiveClock

	// compiling one match at a time bounds the memory: to parse a regular expression of 1 KiB takes up to 5 MiB.
	compiling sync.Mutex
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	return admission.Handle(ctx, req, h.Key, h.create)
}

func (h *Handler) create(ctx context.Context, req webhook.AdmissionRequest) (admission.Granted, error) {
	// The schema has not bounded the headers yet. To decode 1 MiB of empty ones, and to compare their size with the bound, takes 40 MiB.
	var parts struct {
		Spec struct {
			Match json.RawMessage `json:"match"`
		} `json:"spec"`
	}
	if err := admission.Decode(req.Object.Raw, &parts); err != nil {
		return admission.Granted{}, err
	}
	if n := len(parts.Spec.Match); n > 8*tunnel.MaxMatch { // JSON may escape each character
		return admission.Granted{}, admission.Invalid("match: it has %d bytes as JSON, and may have %d: use fewer or shorter conditions", n, tunnel.MaxMatch)
	}
	r := &sondev1.InterceptRequest{}
	if err := admission.Decode(req.Object.Raw, r); err != nil {
		return admission.Granted{}, err
	}
	r.Namespace = req.Namespace // the object may name another, or none
	who := access.FromUserInfo(req.UserInfo)
	namespaceUID, warnings, err := h.decide(ctx, r, who)
	if err != nil {
		return admission.Granted{}, err
	}
	annotations, err := stamp.Sign(h.Key, req.Namespace, kind.Intercept.Name, &r.Spec, stamp.Claim{
		Requester: who, TargetNamespaceUID: namespaceUID, IssuedAt: h.Clock.Now(), RequestUID: string(req.UID),
	})
	return admission.Granted{Annotations: annotations, Warnings: warnings}, err
}

// decide returns the UID of the target's namespace, and warnings for the user. The order matters: no answer says anything about a namespace
// before the requester's right to intercept there is proven.
func (h *Handler) decide(ctx context.Context, r *sondev1.InterceptRequest, who access.Requester) (namespaceUID string, warnings []string, err error) {
	if err := checkShape(r); err != nil {
		return "", nil, err
	}
	if err := admission.RequireRunning(ctx, h.Live, h.OperatorNamespace, kind.Intercept.Name); err != nil {
		return "", nil, err
	}
	in, ref := r.AgentTarget()
	if r.Namespace == h.OperatorNamespace || in == h.OperatorNamespace {
		return "", nil, admission.Forbidden("namespace %s is the operator's own: nothing is intercepted from there or in there; create the InterceptRequest in the namespace of its target", h.OperatorNamespace)
	}
	if err := admission.RequireHub(ctx, h.Live, kind.Intercept.Name, r.Namespace, in); err != nil {
		return "", nil, err
	}
	if err := admission.RequirePods(ctx, h.Reviews, kind.Intercept.Verb, who, in); err != nil {
		return "", nil, err
	}
	if err := h.compile(r); err != nil {
		return "", nil, err
	}
	ns, err := admission.TargetNamespace(ctx, h.Live, in)
	if err != nil {
		return "", nil, err
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return "", nil, admission.Forbidden("a cluster admin has closed namespace %s by the label %s=true: ask them to remove it", in, sondev1.LabelOptOut)
	}
	if warnings, err = h.checkTarget(ctx, r, in, ref); err != nil {
		return "", nil, err
	}
	return string(ns.UID), warnings, h.checkOthers(ctx, r, in, ref)
}

// compile refuses a match that the carrier could not compile. checkShape has bounded it.
func (h *Handler) compile(r *sondev1.InterceptRequest) error {
	match := route.Match(r.Spec.Match)
	if match == nil {
		return nil
	}
	h.compiling.Lock()
	defer h.compiling.Unlock()
	if _, err := match.Compile(); err != nil {
		return admission.Invalid("match: %v", err)
	}
	return nil
}

func (h *Handler) checkTarget(ctx context.Context, r *sondev1.InterceptRequest, in string, ref sondev1.TargetReference) (warnings []string, err error) {
	spec, err := admission.TargetPodSpec(ctx, h.Live, in, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, admission.TargetNotFound(in, ref)
	case err != nil:
		return nil, err
	case spec.HostNetwork:
		return nil, admission.Invalid("the Pods of %s have hostNetwork: true, so their ports are the node's: a port of such a Pod cannot be intercepted", admission.TargetText(in, ref))
	}
	if name := r.Spec.TargetContainer; name != "" && !hasContainer(spec, name) {
		return nil, admission.Invalid("%s has no container %s (it has %s): write one of these, or leave targetContainer (--container) out", admission.TargetText(in, ref), name, target.ContainersText(spec))
	}
	return undeclared(spec, r.Spec.TargetContainerPort), nil
}

// undeclared warns of a port that no container declares, if the Pods declare others: perhaps it is the Service's. Apps may listen on ports
// that they do not declare.
func undeclared(spec *corev1.PodSpec, port int32) []string {
	var declared []string
	containers := slices.Concat(spec.Containers, spec.InitContainers) // a sidecar is an init container that goes on
	for i := range containers {
		for _, p := range containers[i].Ports {
			if p.ContainerPort == port {
				return nil
			}
			declared = append(declared, strconv.Itoa(int(p.ContainerPort)))
		}
	}
	if len(declared) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no container of the target declares port %d (they declare %s): if nothing listens there, you get no request; the port is a container's, not a Service's",
		port, text.Ellipsis(strings.Join(declared, ", "), 100))}
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	return len(target.ContainersNotFound(spec, []string{name})) == 0
}

// checkOthers refuses a request that takes the same connections as another one.
func (h *Handler) checkOthers(ctx context.Context, r *sondev1.InterceptRequest, in string, ref sondev1.TargetReference) error {
	var others sondev1.InterceptRequestList
	if err := h.Cache.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list InterceptRequests: %w", err)
	}
	home, existing := 0, 0
	for i := range others.Items {
		o := &others.Items[i]
		if o.Namespace == r.Namespace {
			existing++
		}
		if o.Ended() || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if o.Namespace == r.Namespace {
			home++
		}
		namespace, with := o.AgentTarget()
		if o.Spec.ClientKey == r.Spec.ClientKey {
			return admission.Invalid("clientKey: another InterceptRequest has the same key, and only one of the two could be served: let kubectl sonde intercept create the request")
		}
		if namespace != in || with != ref || o.Spec.TargetContainerPort != r.Spec.TargetContainerPort {
			continue
		}
		if err := takesTheSame(r, o, in, ref); err != nil {
			return err
		}
	}
	if existing >= maxExisting {
		return admission.TooMany("namespace %s has %d InterceptRequests, and may have %d: delete those that have ended (kubectl delete interceptrequests -n %[1]s NAME)", r.Namespace, existing, maxExisting)
	}
	if home >= maxPerNamespace {
		return admission.TooMany("namespace %s has %d InterceptRequests that have not ended, and may have %d: delete some", r.Namespace, home, maxPerNamespace)
	}
	return nil
}

// takesTheSame refuses a request that takes the connections of another one for the same port.
func takesTheSame(r, o *sondev1.InterceptRequest, in string, ref sondev1.TargetReference) error {
	holder := o.Namespace + "/" + o.Name
	switch {
	case r.Spec.Match == nil && o.Spec.Match == nil:
		return admission.Invalid("InterceptRequest %s takes every connection to port %d of %s already: add a match, such as a header, to take some of them, or, if it is yours, end it: kubectl sonde down %s -n %s",
			holder, r.Spec.TargetContainerPort, admission.TargetText(in, ref), o.Name, o.Namespace)
	case r.Spec.Match != nil && o.Spec.Match != nil && equality.Semantic.DeepEqual(normal(r.Spec.Match), normal(o.Spec.Match)):
		return admission.Invalid("InterceptRequest %s has the same match on port %d of %s: change yours, for example the value of a header, or, if it is yours, end it: kubectl sonde down %s -n %s",
			holder, r.Spec.TargetContainerPort, admission.TargetText(in, ref), o.Name, o.Namespace)
	}
	return nil
}

// normal returns a match in the form that it shares with all matches that mean the same: without upper case in the names of headers, with
// the headers in one order, each of them once, and with one value of require if there is one condition.
func normal(m *sondev1.InterceptMatch) *sondev1.InterceptMatch {
	c := m.DeepCopy()
	for i := range c.Headers {
		c.Headers[i].Name = strings.ToLower(c.Headers[i].Name)
	}
	slices.SortFunc(c.Headers, compareHeaders)
	c.Headers = slices.CompactFunc(c.Headers, func(a, b sondev1.HeaderMatch) bool { return compareHeaders(a, b) == 0 })
	conditions := len(c.Headers)
	for _, t := range []*sondev1.TextMatch{c.Path, c.Method, c.ServerName} {
		if t != nil {
			conditions++
		}
	}
	if c.Require == "" || conditions == 1 {
		c.Require = sondev1.MatchAll
	}
	return c
}
