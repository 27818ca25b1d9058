package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
)

// maxMessage bounds what a refusal says, in bytes: parts of it are texts of users.
const maxMessage = 2048

// refusal is a decision against a request, in words for the user. Every other error is ours.
type refusal struct {
	reason  metav1.StatusReason
	code    int32
	message string
}

func (r *refusal) Error() string { return r.message }

// forbidden refuses somebody who lacks a right.
func forbidden(format string, args ...any) error {
	return &refusal{metav1.StatusReasonForbidden, http.StatusForbidden, fmt.Sprintf(format, args...)}
}

// invalid refuses something that nobody could have.
func invalid(format string, args ...any) error {
	return &refusal{metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, fmt.Sprintf(format, args...)}
}

// granted is a new resource that may be had: its stamp, and what its requester should know.
type granted struct {
	annotations map[string]string
	warnings    []string
}

// handle is what both webhooks do with a request; create decides on a new resource.
func handle(ctx context.Context, req admission.Request, create func(context.Context, admission.Request) (granted, error)) admission.Response {
	switch req.Operation {
	case admissionv1.Create:
		a, err := create(ctx, req)
		return respond(ctx, req, a, err)
	case admissionv1.Update:
		if err := keepStamp(req); err != nil {
			return respond(ctx, req, granted{}, err)
		}
		recordStop(ctx, req)
	default: // the configuration asks for no other
	}
	return admission.Allowed("")
}

// recordStop leaves the record of who ended a capture early: of a change, the spec's only one.
func recordStop(ctx context.Context, req admission.Request) {
	var now, before struct {
		Spec struct {
			Stop bool `json:"stop"`
		} `json:"spec"`
	}
	if json.Unmarshal(req.Object.Raw, &now) != nil || json.Unmarshal(req.OldObject.Raw, &before) != nil || !now.Spec.Stop || before.Spec.Stop {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Admitting the end of a capture", req.Kind.Kind, req.Namespace+"/"+req.Name,
		audit.Key, audit.StopRequested, audit.Requester, req.UserInfo.Username, "dryRun", req.DryRun != nil && *req.DryRun)
}

// respond turns the outcome of a decision into an answer: the annotations of an admitted resource,
// the words of a refusal, or an error of ours, which refuses too because the webhooks fail closed.
func respond(ctx context.Context, req admission.Request, a granted, err error) admission.Response {
	log := ctrl.LoggerFrom(ctx).WithValues(req.Kind.Kind, req.Namespace+"/"+req.Name, audit.Requester, req.UserInfo.Username, "dryRun", req.DryRun != nil && *req.DryRun)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		message := bound(refused.message)
		metrics.Refused(string(refused.reason))
		log.Info("Refusing request", audit.Key, audit.RequestRefused, "reason", message)
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
			Result: &metav1.Status{Status: metav1.StatusFailure, Code: refused.code, Reason: refused.reason, Message: message},
		}}
	case err != nil:
		log.Error(err, "Failing to decide on request")
		return admission.Errored(http.StatusInternalServerError, errors.New(bound(err.Error())+": try again"))
	}
	log.Info("Admitting request", audit.Key, audit.RequestAdmitted)
	return admission.Patched("", annotate(req.Object.Raw, a.annotations)...).WithWarnings(a.warnings...)
}

// annotate patches the annotations and nothing else: a patch of the whole object would drop what
// these types do not know.
func annotate(raw []byte, annotations map[string]string) []jsonpatch.JsonPatchOperation {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	// Decoded before, so it can be decoded here; if not, the object has no annotations to keep.
	if err := json.Unmarshal(raw, &o); err != nil || len(o.Metadata.Annotations) == 0 {
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("add", "/metadata/annotations", annotations)}
	}
	var ops []jsonpatch.JsonPatchOperation
	for _, k := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
		// "add" replaces what a user may have put there himself.
		ops = append(ops, jsonpatch.NewOperation("add", "/metadata/annotations/"+escape(k), annotations[k]))
	}
	return ops
}

// escape makes a key part of a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// decode reads a resource of a request. Types are checked here first: the API server's schema comes
// after the webhooks.
func decode(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return invalid("read the resource: %v: put names and durations in quotes, and take the quotes of numbers away", err)
	}
	return nil
}

// keepStamp is the whole decision on an update: the spec's immutability is the schema's matter, the
// two annotations are ours. Taking them off is refused too: it would stop a capture for no reason
// that its status could tell.
func keepStamp(req admission.Request) error {
	var now, before metav1.PartialObjectMetadata
	if err := decode(req.Object.Raw, &now); err != nil {
		return err
	}
	if err := decode(req.OldObject.Raw, &before); err != nil {
		return err
	}
	for _, a := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
		is, ok := now.Annotations[a]
		was, had := before.Annotations[a]
		if ok != had || is != was {
			return forbidden("annotation %s is written by the operator alone: leave it as it is, or create a new %s to ask under your own name", a, req.Kind.Kind)
		}
	}
	return nil
}

// require asks for the right to have captures of a kind in namespace.
func require(ctx context.Context, r access.Reviews, of kind.Capture, who access.Requester, namespace string) error {
	d, err := r.ReviewPods(ctx, of.Verb, who, namespace)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return forbidden("%s", d.Reason)
	}
	return nil
}

// requireNodes asks for the right that a target needs whose Pods are one with their nodes by a field; without one, none is.
func requireNodes(ctx context.Context, r access.Reviews, of kind.Capture, who access.Requester, field, target string) error {
	if field == "" {
		return nil
	}
	d, err := r.ReviewNodes(ctx, of.Verb, who)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return forbidden("the Pods of %s have %s: true, so their %s are the whole node's: %s", target, field, of.Records, d.Reason)
	}
	return nil
}

// bound cuts s to maxMessage without splitting a character.
func bound(s string) string { return cut(s, maxMessage) }

// cut cuts s to most bytes, and dots, without splitting a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "..."
}
