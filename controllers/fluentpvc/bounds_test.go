package fluentpvc

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The caches keep a few hundred bytes of a claim or a Job whose metadata a user fills, and all that passes read.
func TestOwnedAreBounded(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	labels := map[string]string{sondev1.LabelKind: KindBinding, sondev1.LabelUID: "b-1", sondev1.LabelTargetPodUID: "pod-1"}
	written := func(owner string, controller metav1.OwnerReference) metav1.ObjectMeta {
		all := map[string]string{"app": "web"}
		maps.Copy(all, labels)
		controller.Controller = new(true)
		return metav1.ObjectMeta{
			Namespace: "shop", Name: "n", UID: "u", ResourceVersion: "7", Labels: all, Finalizers: []string{"x/" + big},
			Annotations:     map[string]string{"big": big, sondev1.AnnotationOwner: owner, sondev1.AnnotationTargetPod: big},
			OwnerReferences: []metav1.OwnerReference{{UID: "another", Name: big}, controller},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: big}},
		}
	}
	binding := metav1.OwnerReference{APIVersion: "v1alpha1", Kind: KindBinding, Name: "b", UID: "b-1"}
	long := binding
	long.Name = big
	kept := func(owner bool, references ...metav1.OwnerReference) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "shop", Name: "n", UID: "u", ResourceVersion: "7", Labels: labels, Annotations: map[string]string{}}
		if owner {
			m.Annotations[sondev1.AnnotationOwner] = "shop/b"
		}
		for _, r := range references {
			r.Controller = new(true)
			m.OwnerReferences = append(m.OwnerReferences, r)
		}
		return m
	}
	conditions := []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	for name, tc := range map[string]struct{ in, want client.Object }{
		"a claim": {
			&corev1.PersistentVolumeClaim{
				ObjectMeta: written("shop/b", binding), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1", StorageClassName: &big},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Conditions: []corev1.PersistentVolumeClaimCondition{{Message: big}}},
			},
			&corev1.PersistentVolumeClaim{
				ObjectMeta: kept(true, binding), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			},
		},
		"a Job": {
			&batchv1.Job{ObjectMeta: written("shop/b", binding), Spec: batchv1.JobSpec{ManagedBy: &big}, Status: batchv1.JobStatus{Conditions: conditions}},
			&batchv1.Job{ObjectMeta: kept(true, binding), Status: batchv1.JobStatus{Conditions: conditions}},
		},
		"a Job of a long owner": {&batchv1.Job{ObjectMeta: written(big, long)}, &batchv1.Job{ObjectMeta: kept(false)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := stripOwned(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if b, err := json.Marshal(got); err != nil || len(b) > 4<<10 {
				t.Errorf("%d bytes are kept (%v)", len(b), err)
			}
		})
	}
}

// A refusal by a policy may be long. Conditions and Events are cut to what the API server takes.
func TestTextsAreBounded(t *testing.T) {
	w := newWorld(t, fluentPVC(), targetPod("1"))
	w.refuse = func(o client.Object) error {
		if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
			return errNamed(strings.Repeat("é\n", 5000))
		}
		return nil
	}
	w.pass()
	for _, c := range w.wantPhase(sondev1.BindingPending).Status.Conditions {
		if len(c.Message) > maxNote || strings.Contains(c.Message, "\n") {
			t.Errorf("condition %s has %d bytes: %.50q", c.Type, len(c.Message), c.Message)
		}
	}
	for range len(w.events.Events) {
		if event := <-w.events.Events; len(event) > maxNote+100 || strings.Contains(event, "\n") { // type and reason come first
			t.Errorf("event of %d bytes: %.50q", len(event), event)
		}
	}
}

// errNamed is a refusal with this text.
func errNamed(text string) error { return fmt.Errorf("%s: %w", text, errNameTaken) }

// Any user may write the labels of a finalizer Job's Pods, so these are read from the API server page by page, and all of them.
func TestJobPodsComeInPages(t *testing.T) {
	const pages = 3
	w := newWorld(t)
	read := 0
	live := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.Limit == 0 || o.Namespace != "shop" || o.LabelSelector.String() != sondev1.LabelUID+"=b-1" {
				t.Errorf("list with %+v", o)
			}
			pods := list.(*corev1.PodList)
			pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("job-", read)}}}
			if read++; read < pages {
				pods.Continue = fmt.Sprint(read)
			}
			return nil
		},
	})
	b := &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claimName, UID: "b-1"}}
	o := &observation{binding: b}
	if err := o.readJobPods(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"job-0", "job-1", "job-2"}, o.users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// TestPodsOfAClaim: a claim that very many Pods use is left alone, with an error that says what to do.
func TestPodsOfAClaim(t *testing.T) {
	pods := make([]client.Object, maxPods)
	for i := range pods {
		pods[i] = targetPod(fmt.Sprint(i))
	}
	w := newWorld(t, append(pods[1:], fluentPVC())...)
	if found, err := podsOf(t.Context(), w.Client, "shop", claimName); err != nil || len(found) != maxPods-1 {
		t.Fatalf("%d Pods, %v", len(found), err)
	}
	if err := w.Create(t.Context(), pods[0]); err != nil {
		t.Fatal(err)
	}
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: claimName}})
	if err == nil || !strings.Contains(err.Error(), "used by 100 Pods or more: delete some") {
		t.Errorf("error %v", err)
	}
	if w.writes != 0 {
		t.Errorf("%d writes, want none", w.writes)
	}
}

// TestPodsThatWakeBindings: a Pod wakes the claim that its signed annotation names. Without it, it only wakes bindings that exist: else
// anybody could fill the queue with names.
func TestPodsThatWakeBindings(t *testing.T) {
	signed, forged, copied := targetPod("1"), targetPod("2"), targetPod("3")
	forged.Annotations[sondev1.AnnotationClaim] = "logs." + claimName + ".forged"
	delete(copied.Annotations, sondev1.AnnotationClaim)
	w := newWorld(t, fluentPVC(), signed)
	wakes := func(pod *corev1.Pod) int { return len(w.r.bindingsOf(t.Context(), pod)) }
	if wakes(signed) != 1 || wakes(forged) != 0 || wakes(copied) != 0 {
		t.Errorf("signed wakes %d, forged %d, without an annotation %d; want 1, 0, 0", wakes(signed), wakes(forged), wakes(copied))
	}
	w.settled()
	if wakes(signed) != 1 || wakes(forged) != 1 || wakes(copied) != 1 {
		t.Errorf("with a binding signed wakes %d, forged %d, without an annotation %d; want 1 each", wakes(signed), wakes(forged), wakes(copied))
	}
}

// TestForgedOwnersWakeNobody: a claim or a Job wakes the owner that it names only if that one, or its claim, exists in the object's own
// namespace.
func TestForgedOwnersWakeNobody(t *testing.T) {
	w, delPod, delBinding, _ := bound(t)
	woken := func(owner string) (by []string) {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: "forged", Labels: map[string]string{sondev1.LabelKind: KindBinding}, Annotations: map[string]string{sondev1.AnnotationOwner: owner}}
		for _, o := range []client.Object{&batchv1.Job{ObjectMeta: meta}, &corev1.PersistentVolumeClaim{ObjectMeta: meta}} {
			for _, r := range w.r.ownerOf(t.Context(), o) {
				by = append(by, r.String())
			}
		}
		return by
	}
	for i := range 1000 {
		for _, owner := range []string{fmt.Sprint("shop/made-up-", i), fmt.Sprint("other/made-up-", i), "other/" + claimName} {
			if got := woken(owner); len(got) > 0 {
				t.Fatalf("owner %s wakes %s", owner, got)
			}
		}
	}
	both := []string{"shop/" + claimName, "shop/" + claimName}
	if diff := cmp.Diff(both, woken("shop/"+claimName)); diff != "" {
		t.Errorf("a binding (-want +got):\n%s", diff)
	}
	delBinding()
	delPod()
	if diff := cmp.Diff(both, woken("shop/"+claimName)); diff != "" {
		t.Errorf("a claim whose binding was deleted (-want +got):\n%s", diff)
	}
}
