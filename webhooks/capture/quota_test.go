package capture

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

func quotaOf(t *testing.T, limit int, objects ...client.Object) (*Quota, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(webhooktest.Now)
	return &Quota{Cache: fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(objects...).Build(), Unfinished: limit, Clock: clock}, clock
}

func existing(k kind.Capture, namespace, name string, phase sondev1.Phase) client.Object {
	c := k.New()
	c.SetNamespace(namespace)
	c.SetName(name)
	c.SetAnnotations(map[string]string{sondev1.AnnotationStamp: "stamp-" + name})
	c.CaptureStatus().Phase = phase
	return c
}

// TestQuota checks which captures count, and what a refusal says.
func TestQuota(t *testing.T) {
	leaving := existing(kind.Trace, "shop", "leaving", sondev1.PhasePending)
	leaving.SetDeletionTimestamp(&metav1.Time{Time: webhooktest.Now})
	leaving.SetFinalizers([]string{"example.test/kept"})
	objects := []client.Object{
		existing(kind.PacketCapture, "shop", "waits", ""), existing(kind.Trace, "shop", "runs", sondev1.PhaseCapturing),
		existing(kind.PacketCapture, "shop", "ended", sondev1.PhaseIncomplete), existing(kind.Trace, "bank", "runs", sondev1.PhaseCapturing), leaving,
	}
	q, _ := quotaOf(t, 3, objects...)
	if err := q.Check(t.Context(), "shop"); err != nil {
		t.Errorf("with 2 of 3: %v", err)
	}
	q.Unfinished = 2
	err := q.Check(t.Context(), "shop")
	for _, want := range []string{"namespace shop has 2 PacketCaptures and Traces", "2 is the most here", "stop or delete", "--max-unfinished-captures-per-namespace", "cluster admin"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if err := q.Check(t.Context(), "bank"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if q.Unfinished = 0; q.Check(t.Context(), "shop") != nil {
		t.Error("0 is no ceiling")
	}
}

// TestExisting checks that ended captures count for the second bound, also while a finalizer keeps them.
func TestExisting(t *testing.T) {
	leaving := existing(kind.Trace, "shop", "leaving", sondev1.PhaseCompleted)
	leaving.SetDeletionTimestamp(&metav1.Time{Time: webhooktest.Now})
	leaving.SetFinalizers([]string{"example.test/kept"})
	q, clock := quotaOf(t, 0, existing(kind.PacketCapture, "shop", "ended", sondev1.PhaseCompleted),
		existing(kind.Trace, "shop", "failed", sondev1.PhaseFailed), existing(kind.Trace, "bank", "ended", sondev1.PhaseCompleted), leaving)
	q.Existing = 4
	if err := q.Admit(t.Context(), "shop", "new"); err != nil {
		t.Errorf("with 3 of 4: %v", err)
	}
	err := q.Check(t.Context(), "shop") // the cache does not have the new one yet
	for _, want := range []string{"namespace shop has 4 PacketCaptures and Traces", "4 is the most here", "delete some that have ended", "--max-existing-captures-per-namespace", "cluster admin"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if err := q.Check(t.Context(), "bank"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	clock.Step(admittedFor) // its creation failed after all
	if err := q.Check(t.Context(), "shop"); err != nil {
		t.Errorf("later: %v", err)
	}
	if q.Existing = 0; q.Admit(t.Context(), "shop", "x") != nil {
		t.Error("0 is no ceiling")
	}
}

// TestQuotaConcurrently checks that concurrent requests do not pass the bound while the cache has none of them.
func TestQuotaConcurrently(t *testing.T) {
	q, clock := quotaOf(t, 10)
	var admitted atomic.Int32
	var requests sync.WaitGroup
	for i := range 100 {
		requests.Go(func() {
			if q.Admit(t.Context(), "shop", fmt.Sprint(i)) == nil {
				admitted.Add(1)
			}
		})
	}
	requests.Wait()
	if n := admitted.Load(); n != 10 {
		t.Errorf("%d admitted, want 10", n)
	}
	clock.Step(admittedFor) // their creation failed after all
	if err := q.Check(t.Context(), "shop"); err != nil || len(q.admitted) > 0 {
		t.Errorf("later: %v, %d namespaces are remembered", err, len(q.admitted))
	}
}

// TestQuotaCountsOnce checks that a capture that the cache has meanwhile does not count twice.
func TestQuotaCountsOnce(t *testing.T) {
	q, clock := quotaOf(t, 2, existing(kind.Trace, "shop", "a", ""))
	if err := q.Admit(t.Context(), "shop", "stamp-a"); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Second)
	if err := q.Check(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
}

// TestQuotaCountsEqualCaptures checks that captures of one second count one by one, even if their specs are equal.
func TestQuotaCountsEqualCaptures(t *testing.T) {
	for _, k := range captureKinds {
		t.Run(k.Name, func(t *testing.T) {
			h := k.handler(webhooktest.Reader(t, webhooktest.Objects()...), rightsTo(k.Capture, "pods/shop"))
			h.Quota, _ = quotaOf(t, 3)
			admitted := 0
			for i := range 10 {
				req := k.creation(t, "shop", nil)
				req.UID = types.UID(fmt.Sprint(i))
				if h.Handle(t.Context(), req).Allowed {
					admitted++
				}
			}
			if admitted != 3 {
				t.Errorf("%d admitted, want 3", admitted)
			}
		})
	}
}
