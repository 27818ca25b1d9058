package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
)

// lookupTimeout is far below the entries' own: what hangs here must not hold up the Pods of a namespace.
const lookupTimeout = 2 * time.Second

// maxWarning bounds what a Pod's creator is told, in bytes: the API server cuts warnings at 256.
const maxWarning = 250

// Gates knows the live Traces that gate.
type Gates interface {
	// For returns how a new Pod of namespace is to be gated; false where no Trace that is live and gates has it for a
	// target. The Pod has no UID yet, and may have no name. With two such Traces the answer must always be the same one.
	For(ctx context.Context, namespace string, pod *metav1.ObjectMeta) (gate.Options, bool, error)
}

// GateHandler puts the gate into new Pods. It serves two entries. That of Pods in general fails open: whatever goes
// wrong, here as in the way to here, the Pod is admitted as it is, with a warning. That of Pods labelled
// sondev1.LabelTraceRequired fails closed: they asked for it. It writes nothing, so a dry run is as harmless as it
// should be, and changes nothing in a Pod that it has changed before.
type GateHandler struct {
	Gates Gates
	// OperatorNamespace, where no Pod is gated.
	OperatorNamespace string
	// Required makes it the handler of the entry that fails closed.
	Required bool
}

// Handle implements admission.Handler.
func (h *GateHandler) Handle(ctx context.Context, req admission.Request) (resp admission.Response) {
	// controller-runtime would answer a panic with an error, and that denies.
	defer func() {
		if p := recover(); p != nil {
			resp = h.failed(ctx, req, fmt.Errorf("panic: %v", p))
		}
	}()
	if req.Operation != admissionv1.Create || req.SubResource != "" || req.Kind.Kind != "Pod" || gate.Protected(req.Namespace, h.OperatorNamespace) {
		return admission.Allowed("")
	}
	ops, err := h.decide(ctx, req)
	if err != nil {
		return h.failed(ctx, req, err)
	}
	if len(ops) == 0 {
		return admission.Allowed("")
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return h.failed(ctx, req, err)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: true, Patch: patch, PatchType: new(admissionv1.PatchTypeJSONPatch),
	}}
}

// decide returns the patch for a Pod; none for one that is no Trace's.
func (h *GateHandler) decide(ctx context.Context, req admission.Request) ([]gate.Operation, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return nil, fmt.Errorf("read the Pod: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	o, gated, err := h.Gates.For(ctx, req.Namespace, &pod.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("look for the Pod's trace: %w", err)
	}
	if !gated || o.Misses(&pod) { // it is asked again when another webhook has given the Pod a container
		return nil, nil
	}
	if why := gate.Hindrance(&pod); why != "" {
		return nil, forbidden("Trace %s/%s cannot trace this Pod: %s", o.TraceNamespace, o.TraceName, why)
	}
	return gate.Inject(&pod, o.ForPod(&pod))
}

// failed answers where a Pod that should have a gate gets none, through its own fault or ours.
func (h *GateHandler) failed(ctx context.Context, req admission.Request, err error) admission.Response {
	log := ctrl.LoggerFrom(ctx).WithValues("Pod", req.Namespace+"/"+req.Name, "required", h.Required)
	reason, code := metav1.StatusReasonInternalError, int32(http.StatusInternalServerError)
	if refused, ok := errors.AsType[*refusal](err); ok {
		reason, code = refused.reason, refused.code
		log.Info("Finding a Pod that cannot be gated", "reason", bound(err.Error()))
	} else {
		log.Error(err, "Failing to gate a Pod")
	}
	if !h.Required {
		return admission.Allowed("").WithWarnings(cut("the Pod starts untraced: "+err.Error(), maxWarning))
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: bound(fmt.Sprintf("the Pod is labelled %s=true and cannot be gated (try again, or take the label off to have it start untraced): %v",
			sondev1.LabelTraceRequired, err)),
	}}}
}
