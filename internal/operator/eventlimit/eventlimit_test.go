package eventlimit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestLimit: a namespace has a burst, then one Event in 5 s, and takes none of another.
func TestLimit(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Now())
	l := New(c)
	allowed := func() (n int) {
		for range 3 * Burst {
			if l.Allow("shop") {
				n++
			}
		}
		return n
	}
	if n := allowed(); n != Burst {
		t.Errorf("%d Events at once, want %d", n, Burst)
	}
	c.SetTime(c.Now().Add(time.Minute))
	if n := allowed(); n != 12 {
		t.Errorf("%d Events after a minute, want 12", n)
	}
	if !l.Allow("bank") {
		t.Error("the Events of one namespace take those of another")
	}
}

// recorded is a recorder that keeps the objects of its Events.
type recorded struct{ regarding, related []runtime.Object }

func (r *recorded) Eventf(regarding, related runtime.Object, _, _, _, _ string, _ ...any) {
	r.regarding, r.related = append(r.regarding, regarding), append(r.related, related)
}

func TestRecorder(t *testing.T) {
	to := &recorded{}
	r := NewRecorder(to, clientgoscheme.Scheme, testingclock.NewFakePassiveClock(time.Now()))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u", ResourceVersion: "7"}}
	owner := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "shop", Name: "web", ResourceVersion: "8"}
	r.Eventf(pod, nil, "Warning", "R", "A", "note")
	r.Eventf(owner, pod, "Warning", "R", "A", "note")
	r.Eventf(&sondev1.FluentPVC{}, nil, "Warning", "R", "A", "an object of an unknown kind")
	web := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "u"}
	want := &recorded{
		regarding: []runtime.Object{web, &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "shop", Name: "web"}},
		related:   []runtime.Object{nil, web},
	}
	if diff := cmp.Diff(want, to, cmp.AllowUnexported(recorded{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if owner.ResourceVersion != "8" {
		t.Error("the recorder changed a reference of its caller")
	}
	for range 2 * Burst {
		r.Eventf(pod, nil, "Warning", "R", "A", "note")
	}
	if len(to.regarding) != Burst {
		t.Errorf("%d Events, want %d", len(to.regarding), Burst)
	}
}
