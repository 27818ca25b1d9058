// Package gate puts the gate of a Trace into new Pods.
package gate

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
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// lookupTimeout is far below the timeout of the webhooks, so that a lookup that hangs does not delay the Pods of a namespace.
const lookupTimeout = 2 * time.Second

// Lookup finds the Trace that gates a Pod.
type Lookup interface {
	// Find returns the gate of a new Pod in namespace, and false if no live Trace with a gate targets the Pod. The Pod has
	// no UID yet, and may have no name. If two Traces gate it, the answer is always the same one.
	Find(ctx context.Context, namespace string, pod *metav1.ObjectMeta) (gate.Options, bool, error)
}

// Handler puts the gate into new Pods. It serves two webhooks. The webhook for all Pods fails open: after any error the Pod
// is admitted unchanged, with a warning. The webhook for Pods with the label sondev1.LabelTraceRequired fails closed,
// because their owners requested it. The handler writes nothing, so a dry run changes nothing. A second call changes
// nothing either.
type Handler struct {
	Lookup Lookup
	// OperatorNamespace has no gated Pods.
	OperatorNamespace string
	// Required makes it the handler of the webhook that fails closed.
	Required bool
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) (resp webhook.AdmissionResponse) {
	// controller-runtime would answer a panic with an error, and that denies.
	defer func() {
		if p := recover(); p != nil {
			resp = h.failed(ctx, req, fmt.Errorf("panic: %v", p))
		}
	}()
	if req.Operation != admissionv1.Create || req.SubResource != "" || req.Kind.Kind != "Pod" || gate.Protected(req.Namespace, h.OperatorNamespace) {
		return webhook.Allowed("")
	}
	ops, err := h.decide(ctx, req)
	if err != nil {
		return h.failed(ctx, req, err)
	}
	if len(ops) == 0 {
		return webhook.Allowed("")
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return h.failed(ctx, req, err)
	}
	return webhook.AdmissionResponse{AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed: true, Patch: patch, PatchType: new(admissionv1.PatchTypeJSONPatch),
	}}
}

// Unread answers for a Pod that the manager did not read (admission.Intake), as after any other error.
func (h *Handler) Unread(ctx context.Context, req webhook.AdmissionRequest, err error) webhook.AdmissionResponse {
	return h.failed(ctx, req, err)
}

// decide returns the patch for a Pod, and none if no Trace gates it.
func (h *Handler) decide(ctx context.Context, req webhook.AdmissionRequest) ([]gate.Operation, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return nil, fmt.Errorf("read the Pod: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	o, gated, err := h.Lookup.Find(ctx, req.Namespace, &pod.ObjectMeta)
	if err != nil {
		return nil, fmt.Errorf("find the Pod's trace: %w", err)
	}
	if !gated || o.Misses(&pod) { // if another webhook adds a container, the API server calls again
		return nil, nil
	}
	if why := gate.Hindrance(&pod); why != "" {
		return nil, admission.Forbidden("Trace %s/%s cannot trace this Pod: %s", o.TraceNamespace, o.TraceName, why)
	}
	return gate.Inject(&pod, o.ForPod(&pod))
}

// failed answers for a Pod that should have a gate and gets none, because of the Pod or of the operator.
func (h *Handler) failed(ctx context.Context, req webhook.AdmissionRequest, err error) webhook.AdmissionResponse {
	log := ctrl.LoggerFrom(ctx).WithValues("Pod", req.Namespace+"/"+req.Name, "required", h.Required)
	why := text.Ellipsis(err.Error(), admission.MaxMessageBytes) // may have names that users gave
	reason, code := metav1.StatusReasonInternalError, int32(http.StatusInternalServerError)
	if refused, ok := errors.AsType[*admission.Refusal](err); ok {
		reason, code = refused.Reason, refused.Code
		log.Info("Finding a Pod that cannot be gated", "reason", why)
	} else {
		log.Error(errors.New(why), "Failing to gate a Pod")
	}
	if !h.Required {
		return webhook.Allowed("").WithWarnings(text.Ellipsis("the Pod starts untraced: "+err.Error(), admission.MaxWarningBytes))
	}
	return webhook.AdmissionResponse{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: text.Ellipsis(fmt.Sprintf("the Pod is labelled %s=true and cannot be gated (try again, or remove the label to start it untraced): %v",
			sondev1.LabelTraceRequired, err), admission.MaxMessageBytes),
	}}}
}
