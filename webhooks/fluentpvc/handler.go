// Package fluentpvc admits FluentPVCs and stamps them with the user who created them or changed them last.
package fluentpvc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Handler admits FluentPVCs and stamps them. It fails closed. It creates reviews, which the API server does not store, and dry
// runs, so it changes nothing.
type Handler struct {
	// Live creates the dry runs.
	Live client.Writer
	// Reviews are not cached.
	Reviews access.Reviews
	// Key of the stamp.
	Key []byte
	// OperatorNamespace is where the dry runs are created.
	OperatorNamespace string
	Clock             clock.PassiveClock
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	return admission.HandleMutable(ctx, req, h.decide)
}

// decide decides on a new FluentPVC and on an update. An update that changes neither spec nor stamp is not looked at.
func (h *Handler) decide(ctx context.Context, req webhook.AdmissionRequest) (admission.Granted, error) {
	if req.Operation == admissionv1.Update {
		if changed, err := isChanged(req); err != nil || !changed {
			return admission.Granted{}, err
		}
	}
	f, unknown, err := decode(req.Object.Raw)
	if err != nil {
		return admission.Granted{}, err
	}
	if f.Name == "" {
		return admission.Granted{}, admission.Invalid("metadata.name is empty: write a name, because Pods name their FluentPVC; generateName does not work")
	}
	who := access.FromUserInfo(req.UserInfo)
	if err := h.requireInject(ctx, who); err != nil {
		return admission.Granted{}, err
	}
	if err := h.checkSpec(ctx, &f.Spec, unknown); err != nil {
		return admission.Granted{}, err
	}
	annotations, err := stamp.SignFluentPVC(h.Key, f, stamp.Claim{Requester: who, IssuedAt: h.Clock.Now(), RequestUID: string(req.UID)})
	return admission.Granted{Annotations: annotations}, err
}

// isChanged reports whether an update changes the stamp, or the spec as it is signed. Clients that have the types of Kubernetes
// add empty fields such as resources: {}, which change nothing.
func isChanged(req webhook.AdmissionRequest) (bool, error) {
	now, unknown, err := decode(req.Object.Raw)
	if err != nil {
		return false, err
	}
	before := &sondev1.FluentPVC{}
	if hugeQuantity(req.OldObject.Raw) != "" {
		return true, nil // stored while no webhook ran
	}
	if err := admission.Decode(req.OldObject.Raw, before); err != nil {
		return true, nil //nolint:nilerr // stored while no webhook ran: the update is checked like a creation
	}
	for _, a := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
		if now.Annotations[a] != before.Annotations[a] {
			return true, nil
		}
	}
	is, err := json.Marshal(&now.Spec)
	if err != nil {
		return false, fmt.Errorf("marshal spec: %w", err)
	}
	was, err := json.Marshal(&before.Spec)
	if err != nil {
		return false, fmt.Errorf("marshal spec: %w", err)
	}
	return len(unknown) > 0 || !bytes.Equal(is, was), nil
}

// requireInject refuses a user who may not put containers into the Pods of all namespaces.
func (h *Handler) requireInject(ctx context.Context, who access.Requester) error {
	decision, err := h.Reviews.ReviewPods(ctx, sondev1.VerbInject, who, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return admission.Forbidden("a FluentPVC puts a container into other people's Pods: %s", decision.Reason)
	}
	return nil
}

// checkSpec refuses a spec with all its problems at once. The API server is asked only about a spec without other problems.
func (h *Handler) checkSpec(ctx context.Context, s *sondev1.FluentPVCSpec, unknown []string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("marshal spec: %w", err)
	}
	if len(b) > MaxSpecBytes {
		return admission.Invalid("the spec has %d KiB, and a FluentPVC may have %d, because the binding of each Pod has a copy: move scripts into the image or a ConfigMap", len(b)>>10, MaxSpecBytes>>10)
	}
	problems := unknown
	for _, e := range check(s) {
		problems = append(problems, e.Error())
	}
	if len(problems) == 0 {
		var drafts []draft
		if drafts, problems = build(s, h.OperatorNamespace); len(problems) == 0 {
			if problems, err = h.dryRun(ctx, drafts); err != nil {
				return err
			}
		}
	}
	return refusal(problems)
}

// maxProblems of a message. The rest is counted.
const maxProblems = 12

// refusal returns the error that lists problems, or nil if there are none.
func refusal(problems []string) error {
	switch n := len(problems); {
	case n == 0:
		return nil
	case n == 1:
		return admission.Invalid("%s", problems[0])
	case n > maxProblems:
		return admission.Invalid("%d problems, the first %d: %s", n, maxProblems, strings.Join(problems[:maxProblems], "; "))
	default:
		return admission.Invalid("%d problems: %s", n, strings.Join(problems, "; "))
	}
}
