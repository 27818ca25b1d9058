package fluentpvc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
)

// grant returns the RoleBinding of "kubectl sonde fluentpvc allow".
func grant() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: access.RoleFluentPVC, UID: "g", ResourceVersion: "7"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: access.RoleFluentPVC},
		Subjects:   []rbacv1.Subject{access.ManagerSubject("sonde-system")},
	}
}

// The cache keeps a few hundred bytes of a RoleBinding that a user fills, and whether it gives the manager its rights.
func TestGrantsAreBounded(t *testing.T) {
	full := grant()
	full.Labels = map[string]string{"big": strings.Repeat("x", 200<<10)}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	for i := range 10_000 {
		full.Subjects = append(full.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fmt.Sprint("user-", i)})
	}
	other := full.DeepCopy()
	other.RoleRef.Name = strings.Repeat("x", 200<<10)
	nothing := grant()
	nothing.RoleRef, nothing.Subjects = rbacv1.RoleRef{}, nil
	for name, tc := range map[string]struct {
		in   *rbacv1.RoleBinding
		want *rbacv1.RoleBinding
	}{
		"gives the rights": {in: full, want: grant()},
		"gives others":     {in: other, want: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			got := stripGrant(tc.in, "sonde-system")
			if diff := cmp.Diff(any(tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if b, err := json.Marshal(got); err != nil || len(b) > 1<<10 {
				t.Errorf("%d bytes are kept (%v)", len(b), err)
			}
			if again := stripGrant(got, "sonde-system"); !cmp.Equal(got, again) { // paging strips an object twice
				t.Errorf("stripped twice: %+v", again)
			}
		})
	}
}

// delayed notes the requests that wait for their time.
type delayed struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	after map[string]time.Duration
}

func (q *delayed) AddAfter(r reconcile.Request, delay time.Duration) { q.after[r.String()] = delay }

// TestGrantedWakesWhoWaits: a RoleBinding wakes the bindings of its namespace whose write was refused for a missing right, when the
// API servers have read it. A binding that waits for a quota is not woken, and neither is one by a RoleBinding that grants nothing new.
func TestGrantedWakesWhoWaits(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), claimName, errors.New("no"))
	other := grant()
	other.RoleRef.Name = "view"
	for name, tc := range map[string]struct {
		right string // that is missing; empty for a quota
		// before and now are the RoleBinding before and after the event, nil if it did not exist.
		before, now *rbacv1.RoleBinding
		want        bool
	}{
		"created":              {right: "create persistentvolumeclaims", now: grant(), want: true},
		"its subject added":    {right: "create persistentvolumeclaims", before: other, now: grant(), want: true},
		"annotated":            {right: "create persistentvolumeclaims", before: grant(), now: grant()},
		"of another role":      {right: "create persistentvolumeclaims", now: other},
		"deleted":              {right: "create persistentvolumeclaims", before: grant()},
		"created, but a quota": {now: grant()},
		"in another namespace": {right: "create persistentvolumeclaims", now: &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: access.RoleFluentPVC}, RoleRef: grant().RoleRef, Subjects: grant().Subjects}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fluentPVC(), targetPod("1"))
			w.missing = map[string]bool{tc.right: true}
			w.refuse = func(o client.Object) error {
				if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
					return forbidden
				}
				return nil
			}
			w.pass()
			w.wantPhase(sondev1.BindingPending)
			q, h := &delayed{after: map[string]time.Duration{}}, w.r.granted()
			switch {
			case tc.before == nil:
				h.Create(t.Context(), event.CreateEvent{Object: tc.now}, q)
			case tc.now == nil:
				h.Delete(t.Context(), event.DeleteEvent{Object: tc.before}, q)
			default:
				h.Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now}, q)
			}
			want := map[string]time.Duration{}
			if tc.want {
				want["shop/"+claimName] = grantDelay
			}
			if diff := cmp.Diff(want, q.after); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// A finalizer Job, and a deletion, that were refused for a missing right wait for the RoleBinding, too.
func TestNotPermitted(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	if got := w.r.notPermitted(t.Context(), "shop"); len(got) > 0 {
		t.Errorf("waiting: %v, want none while the Pod runs", got)
	}
	waits := func(what string) {
		t.Helper()
		w.missing = map[string]bool{what: true}
		w.refuse = func(o client.Object) error {
			return apierrors.NewForbidden(corev1.Resource("x"), o.GetName(), errors.New("no"))
		}
		w.pass()
		w.pass()
		if got := w.r.notPermitted(t.Context(), "shop"); len(got) != 1 {
			t.Errorf("without the right to %s: waiting %v, want the binding", what, got)
		}
		w.refuse = func(client.Object) error { return nil }
	}
	w.endPod(pod)
	waits("create jobs")
	w.settled()
	w.endJob(1, batchv1.JobComplete)
	waits("delete persistentvolumeclaims")
}
