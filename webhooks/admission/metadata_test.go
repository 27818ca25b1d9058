package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// TestMetadata: an object has a bounded number of labels, owners and finalizers, from its creation or from an update. One
// that has more from before can lose them one by one.
func TestMetadata(t *testing.T) {
	const most = webhookpath.MaxMetadata
	object := func(labels, owners, finalizers int) any {
		m := metav1.ObjectMeta{Namespace: "shop", Name: "mine", Labels: map[string]string{}}
		for i := range labels {
			m.Labels[fmt.Sprint("l", i)] = "x"
		}
		m.OwnerReferences = make([]metav1.OwnerReference, owners)
		m.Finalizers = make([]string, finalizers)
		return metav1.PartialObjectMetadata{ObjectMeta: m}
	}
	for name, tc := range map[string]struct {
		now, before any
		want        string // of the refusal
	}{
		"as many as are allowed":   {now: object(most, most, most)},
		"labels":                   {now: object(most+1, 0, 0), want: "metadata.labels has 65 entries, and a PacketCapture may have 64: remove some"},
		"owners":                   {now: object(0, most+1, 0), want: "metadata.ownerReferences has 65"},
		"finalizers":               {now: object(0, 0, 12000), want: "metadata.finalizers has 12000"},
		"labels by an update":      {now: object(most+1, 0, 0), before: object(most, 0, 0), want: "metadata.labels has 65"},
		"one less than before":     {now: object(999, 0, 0), before: object(1000, 0, 0)},
		"as many as before":        {now: object(1000, 0, 0), before: object(1000, 0, 0)},
		"one more than far before": {now: object(1001, 0, 0), before: object(1000, 0, 0), want: "metadata.labels has 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			op := admissionv1.Create
			if tc.before != nil {
				op = admissionv1.Update
			}
			resp := admission.Handle(t.Context(), webhooktest.Request(t, op, "PacketCapture", "shop", tc.now, tc.before), webhooktest.Key,
				func(context.Context, webhook.AdmissionRequest) (admission.Granted, error) {
					return admission.Granted{}, nil
				})
			switch {
			case tc.want != "":
				webhooktest.Refused(t, resp, webhooktest.Invalid, tc.want)
			case !resp.Allowed:
				t.Errorf("refused: %s", strings.TrimSpace(resp.Result.Message))
			}
		})
	}
}
