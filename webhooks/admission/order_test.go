package admission_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// The schema takes another order of events, containers or interfaces for no change. It breaks the stamp.
func TestAnotherOrderIsRefused(t *testing.T) {
	trace := func(events ...sondev1.TraceGroup) *sondev1.Trace {
		return &sondev1.Trace{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine", UID: "u", CreationTimestamp: metav1.NewTime(webhooktest.Now)},
			Spec:       sondev1.TraceSpec{TargetDeployment: "web", Events: events},
		}
	}
	before, after := trace(sondev1.TraceFile, sondev1.TraceIO), trace(sondev1.TraceIO, sondev1.TraceFile)
	var err error
	claim := stamp.Claim{Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: "uid-shop", IssuedAt: webhooktest.Now}
	if before.Annotations, err = stamp.Sign(webhooktest.Key, "shop", "Trace", &before.Spec, claim); err != nil {
		t.Fatal(err)
	}
	after.Annotations = before.Annotations
	if _, err := stamp.VerifyCapture(webhooktest.Key, before); err != nil {
		t.Fatal(err)
	}
	if _, err := stamp.VerifyCapture(webhooktest.Key, after); err == nil {
		t.Fatal("the stamp is valid for any order: then no update needs to be refused")
	}
	handle := func(now *sondev1.Trace) webhook.AdmissionResponse {
		return admission.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, "Trace", "shop", now, before), webhooktest.Key,
			func(context.Context, webhook.AdmissionRequest) (admission.Granted, error) {
				return admission.Granted{}, nil
			})
	}
	webhooktest.Refused(t, handle(after), webhooktest.Invalid, "the order of spec.events is immutable, too")
	stopped := before.DeepCopy()
	stopped.Spec.Stop = true
	for _, now := range []*sondev1.Trace{before, stopped} {
		if resp := handle(now); !resp.Allowed {
			t.Errorf("refused: %s", resp.Result.Message)
		}
	}
}

// The spec of an update is not valid yet, and may have 3 MiB.
func TestUpdateTakesBoundedMemory(t *testing.T) {
	req := webhooktest.Request(t, admissionv1.Update, "Trace", "shop", &sondev1.Trace{}, &sondev1.Trace{})
	req.Object.Raw = []byte(`{"spec":{"events":[` + strings.Repeat("{},", 1<<20) + `0]}}`)
	if n := testing.AllocsPerRun(1, func() { admission.Handle(t.Context(), req, webhooktest.Key, nil) }); n > 1000 {
		t.Errorf("%.0f allocations", n)
	}
}
