// Package admission is shared by the webhooks of Sonde's kinds, which decide, refuse and stamp. The webhooks fail
// closed: without them no object is admitted. An object that was created without them carries no stamp, and its controller
// does nothing. They match only Sonde's kinds, and never DELETE or status, so they delay no other request and no deletion.
package admission

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Granted is the answer to an admitted creation: the annotations of the stamp, and warnings for the requester.
type Granted struct {
	Annotations map[string]string
	Warnings    []string
}

// Handle answers a request for a stamped kind whose spec is immutable. create decides on a new object: it refuses by an error
// of Forbidden or Invalid. Every other error refuses too. An update must leave the stamp as it is; if it stops a capture, the
// answer signs its user with key.
func Handle(ctx context.Context, req webhook.AdmissionRequest, key []byte, create func(context.Context, webhook.AdmissionRequest) (Granted, error)) webhook.AdmissionResponse {
	switch req.Operation {
	case admissionv1.Create:
		if err := checkMetadata(req); err != nil {
			return respond(ctx, req, Granted{}, err)
		}
		granted, err := create(ctx, req)
		return respond(ctx, req, granted, err)
	case admissionv1.Update:
		stop, err := update(req)
		if err = errors.Join(err, checkMetadata(req)); err != nil {
			return respond(ctx, req, Granted{}, err)
		}
		if stop != "" {
			signed := stamp.SignStop(key, req.Kind.Kind, stop, req.UserInfo.Username)
			return webhook.Patched("", annotate(req.Object.Raw, map[string]string{sondev1.AnnotationStoppedBy: signed})...)
		}
	default: // the configuration asks for no other
	}
	return webhook.Allowed("")
}

// HandleMutable answers a request for a stamped kind whose spec may change. decide decides on a new object and on an update,
// as create of Handle does. If it grants no annotations, the object keeps those that it has.
func HandleMutable(ctx context.Context, req webhook.AdmissionRequest, decide func(context.Context, webhook.AdmissionRequest) (Granted, error)) webhook.AdmissionResponse {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return webhook.Allowed("") // the configuration asks for no other
	}
	if err := checkMetadata(req); err != nil {
		return respond(ctx, req, Granted{}, err)
	}
	granted, err := decide(ctx, req)
	if err == nil && len(granted.Annotations) == 0 {
		return webhook.Allowed("").WithWarnings(granted.Warnings...)
	}
	return respond(ctx, req, granted, err)
}

// claims bounds the records of the webhooks' calls, which any Pod may send that knows the path. The controllers record what is
// stored.
var claims = audit.NewBound(clock.RealClock{})

// respond turns a decision into an answer. An error of the operator refuses, too, because the webhooks fail closed.
func respond(ctx context.Context, req webhook.AdmissionRequest, granted Granted, err error) webhook.AdmissionResponse {
	log := ctrl.LoggerFrom(ctx).WithValues(req.Kind.Kind, objectName(req), audit.Requester, req.UserInfo.Username, "dryRun", req.DryRun != nil && *req.DryRun)
	record := func(what string, more ...any) {
		if log, ok := claims.Next(log); ok {
			log.Info(what, append(more, audit.Claimed, true)...)
		}
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		message := text.Ellipsis(refusal.Message, MaxMessageBytes)
		metrics.Refused(string(refusal.Reason))
		record("Refusing request", audit.Key, audit.RequestRefused, "reason", message)
		return webhook.AdmissionResponse{AdmissionResponse: admissionv1.AdmissionResponse{
			Result: &metav1.Status{Status: metav1.StatusFailure, Code: refusal.Code, Reason: refusal.Reason, Message: message},
		}}
	}
	if err != nil {
		message := text.Ellipsis(err.Error(), MaxMessageBytes)
		log.Error(errors.New(message), "Failing to decide on request")
		return webhook.Errored(http.StatusInternalServerError, errors.New(message+": try again"))
	}
	record("Admitting request", audit.Key, audit.RequestAdmitted)
	return webhook.Patched("", annotate(req.Object.Raw, granted.Annotations)...).WithWarnings(granted.Warnings...)
}

// objectName returns NAMESPACE/NAME, or NAME for a cluster-scoped object.
func objectName(req webhook.AdmissionRequest) string {
	if req.Namespace == "" {
		return req.Name
	}
	return req.Namespace + "/" + req.Name
}

// Decode reads an object of a request. It checks the types of fields, because the API server applies its schema only
// after the webhooks.
func Decode(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return Invalid("read the resource: %v: %s", err, remedyOf(err))
	}
	return nil
}

// remedyOf says what to write instead of a value of another type.
func remedyOf(err error) string {
	if wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err); ok {
		switch wrong.Type.Kind() { //nolint:exhaustive // the others have the general advice
		case reflect.Struct, reflect.Map:
			return "it is no single value but has fields of its own, which kubectl explain shows"
		case reflect.Slice:
			return "it is a list: write each entry after a hyphen"
		case reflect.String:
			return "put the value in quotes"
		case reflect.Int32, reflect.Int64:
			return "write a number, without quotes"
		}
	}
	return "put names and durations in quotes, and remove the quotes around numbers"
}

// annotate patches the annotations and nothing else: a patch of the whole object would drop fields that these types do
// not know.
func annotate(raw []byte, annotations map[string]string) []jsonpatch.JsonPatchOperation {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	// create has decoded it before. If it cannot be decoded here, it has no annotations to keep.
	if err := json.Unmarshal(raw, &o); err != nil || len(o.Metadata.Annotations) == 0 {
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("add", "/metadata/annotations", annotations)}
	}
	var ops []jsonpatch.JsonPatchOperation
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		// "add" replaces an annotation that the user has written.
		ops = append(ops, jsonpatch.NewOperation("add", "/metadata/annotations/"+pointer.Replace(k), annotations[k]))
	}
	return ops
}

// pointer escapes a key for a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// stoppable is the part of an object that updates may change, or must keep.
type stoppable struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Stop bool `json:"stop"`
	} `json:"spec"`
}

// update decides on an update. The schema holds the spec immutable; the annotations of the operator are checked here. Removing
// them is refused, too: the capture would stop, and its status could not say why. If the update stops a capture, stops is its
// UID, and the annotation of the stop may have any value: it is overwritten.
func update(req webhook.AdmissionRequest) (stops types.UID, err error) {
	var now, before stoppable
	if err := Decode(req.Object.Raw, &now); err != nil {
		return "", err
	}
	if err := Decode(req.OldObject.Raw, &before); err != nil {
		return "", err
	}
	if err := checkOrder(req); err != nil {
		return "", err
	}
	if now.Spec.Stop && !before.Spec.Stop {
		stops = before.UID
	}
	for _, a := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationStoppedBy} {
		is, ok := now.Annotations[a]
		was, had := before.Annotations[a]
		if (ok != had || is != was) && (a != sondev1.AnnotationStoppedBy || stops == "") {
			return "", Forbidden("annotation %s is written by the operator alone: leave it as it is, or create a new %s to ask under your own name", a, req.Kind.Kind)
		}
	}
	return stops, nil
}

// checkOrder refuses another order of the same entries. For the schema, lists that are sets are equal then. But the stamp is over the
// list as it was: a running capture would end as not admitted, and the results of one that has ended could not be read. A new spec is
// as long as a review may be, and entries take 50 times their size. The same entries in another order have the same length. So only lists
// of the stored list's length are parsed.
func checkOrder(req webhook.AdmissionRequest) error {
	var now, before struct {
		Spec map[string]stdjson.RawMessage `json:"spec"`
	}
	if err := Decode(req.Object.Raw, &now); err != nil {
		return err
	}
	if err := Decode(req.OldObject.Raw, &before); err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(now.Spec)) {
		is, was := now.Spec[field], before.Spec[field]
		if len(is) != len(was) || bytes.Equal(is, was) {
			continue
		}
		if a, b := sortedTexts(is), sortedTexts(was); a != nil && slices.Equal(a, b) {
			return Invalid("the order of spec.%s is immutable, too: leave the list as it is, or create a new %s", field, req.Kind.Kind)
		}
	}
	return nil
}

// sortedTexts returns the entries of a list of texts in order, and nil for anything else.
func sortedTexts(list []byte) []string {
	var texts []string
	if json.Unmarshal(list, &texts) != nil {
		return nil
	}
	slices.Sort(texts)
	return texts
}
