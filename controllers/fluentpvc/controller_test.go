package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
)

const claimName = "logs-01234567-abcdefghij"

var key = []byte("0123456789abcdef0123456789abcdef")

// world is a fake cluster with one reconciler.
type world struct {
	client.Client
	t      *testing.T
	r      *Reconciler
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
	writes int
	// refuse is the answer to the creation or deletion of an object, or nil.
	refuse func(client.Object) error
	// missing are the rights that the operator lacks, by verb and resource, and unanswered is the error of reviews.
	missing    map[string]bool
	unanswered error
	asked      int
	// invalid is what is wrong with the FluentPVC's stamp, or nil.
	invalid error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(noon), events: events.NewFakeRecorder(1000), refuse: func(client.Object) error { return nil }}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).
		WithStatusSubresource(&sondev1.FluentPVCBinding{}).
		WithIndex(&corev1.Pod{}, IndexClaims, claimsOf).WithIndex(&corev1.Pod{}, IndexClaimants, claimants).
		Build()
	counted := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			if err := w.refuse(o); err != nil {
				return err
			}
			if o.GetUID() == "" {
				o.SetUID(types.UID("uid-of-" + o.GetName())) // the fake client sets none
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.writes++
			if err := w.refuse(o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			w.writes++
			return w.refuse(&corev1.Pod{})
		},
	})
	w.r = &Reconciler{
		Client: counted, Own: w.Client, Live: w.Client, PauseConfig: w.Client, Verify: func(*sondev1.FluentPVC) error { return w.invalid }, Permitted: w.permitted, Key: key, Namespace: "sonde-system", Recorder: eventlimit.NewRecorder(w.events, s, w.clock), Clock: w.clock,
	}
	return w
}

func (w *world) permitted(_ context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	if what.Namespace != "shop" {
		w.t.Errorf("review of a right in namespace %q", what.Namespace)
	}
	w.asked++
	return !w.missing[what.Verb+" "+what.Resource] && w.unanswered == nil, w.unanswered
}

func fluentPVC() *sondev1.FluentPVC {
	return &sondev1.FluentPVC{
		ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "f-1"},
		Spec: sondev1.FluentPVCSpec{
			PVCSpecTemplate:             corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			PVCFinalizerJobSpecTemplate: batchv1.JobSpec{TTLSecondsAfterFinished: new(int32(1)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "finalizer", Image: "i"}}}}},
			PVCVolumeName:               "data", PVCVolumeMountPath: "/data", SidecarContainerTemplate: corev1.Container{Name: "sidecar", Image: "i"},
		},
	}
}

// targetPod is a Pod that the webhook has changed.
func targetPod(uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-" + uid, UID: types.UID("pod-" + uid),
			Annotations: map[string]string{sondev1.KeyFluentPVC: "logs", sondev1.AnnotationClaim: claim.Ref{FluentPVC: "logs", Claim: claimName}.Sign(key, "shop")},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "sidecar"}}, Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
		}}}},
	}
}

func (w *world) pass() ctrl.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: claimName}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// settled makes passes until one writes nothing, and returns the number of writes.
func (w *world) settled() int {
	w.t.Helper()
	before := w.writes
	for range 10 {
		now := w.writes
		if w.pass(); w.writes == now {
			return w.writes - before
		}
	}
	w.t.Fatal("ten passes wrote, and none settled")
	return 0
}

func (w *world) binding() *sondev1.FluentPVCBinding {
	w.t.Helper()
	b := &sondev1.FluentPVCBinding{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: claimName}, b); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		w.t.Fatal(err)
	}
	return b
}

func (w *world) wantPhase(want sondev1.BindingPhase) *sondev1.FluentPVCBinding {
	w.t.Helper()
	b := w.binding()
	if b == nil {
		w.t.Fatalf("no binding, want phase %s", want)
	}
	if b.Status.Phase != want {
		w.t.Fatalf("phase %s, want %s; conditions %+v", b.Status.Phase, want, b.Status.Conditions)
	}
	for _, c := range []string{sondev1.ConditionClaimCreated, sondev1.ConditionSidecarHealthy, sondev1.ConditionFinalized} {
		if apimeta.FindStatusCondition(b.Status.Conditions, c) == nil {
			w.t.Errorf("no condition %s", c)
		}
	}
	return b
}

func (w *world) claim() *corev1.PersistentVolumeClaim {
	w.t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: claimName}, c); err != nil {
		return nil
	}
	return c
}

// bind binds a volume to the claim.
func (w *world) bind() {
	w.t.Helper()
	c := w.claim()
	c.Spec.VolumeName, c.Status.Phase = "pv-1", corev1.ClaimBound
	if err := errors.Join(w.Update(w.t.Context(), c), w.Status().Update(w.t.Context(), c)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) endPod(pod *corev1.Pod) {
	w.t.Helper()
	if err := w.Delete(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

// endJob ends the Job of an attempt.
func (w *world) endJob(attempt int32, condition batchv1.JobConditionType) {
	w.t.Helper()
	job := &batchv1.Job{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: jobName(w.binding(), attempt)}, job); err != nil {
		w.t.Fatal(err)
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
	if err := w.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

func TestLifeOfAClaim(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	if n := w.settled(); n != 3 {
		t.Errorf("%d writes until Ready, want 3: binding, claim, status", n)
	}
	b := w.wantPhase(sondev1.BindingReady)
	if c := w.claim(); c == nil || c.Labels[sondev1.LabelUID] != string(b.UID) || len(c.OwnerReferences) != 0 {
		t.Errorf("claim %+v, want the binding's label and no owner", c)
	}
	w.bind()
	if n := w.settled(); n != 0 {
		t.Errorf("%d writes for a bound claim, want none", n)
	}
	if err := w.Delete(t.Context(), &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}); err != nil { // the binding has all that it needs
		t.Fatal(err)
	}
	w.endPod(pod)
	w.settled()
	w.wantPhase(sondev1.BindingFinalizerJobApplied)
	w.endJob(1, batchv1.JobComplete)
	w.settled()
	if w.claim() != nil || w.binding() != nil {
		t.Errorf("claim %v and binding %v are left", w.claim(), w.binding())
	}
	if w.writes > 9 {
		t.Errorf("%d writes in all, want at most 9", w.writes)
	}
}

// TestDeathAfterEachWrite: a manager that dies after any write of a life leaves a volume that the next one finishes, with one Job. No
// state on the way says that data was lost.
func TestDeathAfterEachWrite(t *testing.T) {
	errDead := errors.New("the manager is dead")
	for last := 1; last <= 9; last++ {
		t.Run(fmt.Sprint("after write ", last), func(t *testing.T) {
			pod := targetPod("1")
			w := newWorld(t, fluentPVC(), pod)
			dead, jobs := false, map[types.UID]bool{}
			write := func(do func() error) error {
				if dead {
					return errDead
				}
				err := do()
				if w.writes == last {
					dead = true
					return errDead
				}
				return err
			}
			w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					return write(func() error {
						err := c.Create(ctx, o, opts...)
						if job, ok := o.(*batchv1.Job); ok && err == nil {
							jobs[job.UID] = true
						}
						return err
					})
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					return write(func() error { return c.Delete(ctx, o, opts...) })
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
				},
			})
			passes := func() {
				t.Helper()
				for range 10 {
					_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: claimName}})
					if err != nil && !dead {
						t.Fatal(err)
					}
					dead = false // the next manager
					if b := w.binding(); b != nil && (b.Status.Phase == sondev1.BindingUnknown || b.Status.Phase == sondev1.BindingDataLost) {
						t.Fatalf("phase %s, conditions %+v", b.Status.Phase, b.Status.Conditions)
					}
				}
			}
			passes()
			w.wantPhase(sondev1.BindingReady)
			w.bind()
			w.endPod(pod)
			passes()
			w.wantPhase(sondev1.BindingFinalizerJobApplied)
			w.endJob(1, batchv1.JobComplete)
			passes()
			if w.claim() != nil || w.binding() != nil {
				t.Errorf("claim %v and binding %v are left", w.claim(), w.binding())
			}
			if len(jobs) != 1 {
				t.Errorf("%d Jobs, want 1", len(jobs))
			}
			if w.writes < 9 {
				t.Errorf("%d writes: the manager did not die after each", w.writes)
			}
		})
	}
}

// TestStatusOfADeletionIsWrittenOnce: the status says in the same write that the Job has succeeded and that the claim is deleted. Nothing is
// deleted in that pass.
func TestStatusOfADeletionIsWrittenOnce(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	w.endJob(1, batchv1.JobComplete)
	before := w.writes
	w.pass()
	b := w.wantPhase(sondev1.BindingFinalizerJobSucceeded)
	if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionClaimCreated); c.Reason != sondev1.ReasonClaimDeleted || w.writes != before+1 || w.claim() == nil {
		t.Errorf("condition %+v after %d writes, claim %v; want ClaimDeleted after one write, and the claim", c, w.writes-before, w.claim())
	}
	w.pass()
	if w.writes != before+3 || w.claim() != nil {
		t.Errorf("%d writes, claim %v; want two deletions more", w.writes-before, w.claim())
	}
}

// TestPodOfASucceededJobIsNoKeeper: the cache may still have the Pod of a Job that has succeeded as running. The status does not name it, so that
// its end is no change. A Pod of someone else is named.
func TestPodOfASucceededJobIsNoKeeper(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  func(*sondev1.FluentPVCBinding) string
		want bool
	}{
		"the Job's":          {pod: func(b *sondev1.FluentPVCBinding) string { return jobName(b, 1) + "-x7k2p" }},
		"of someone else":    {pod: func(*sondev1.FluentPVCBinding) string { return "debug" }, want: true},
		"of another attempt": {pod: func(b *sondev1.FluentPVCBinding) string { return jobName(b, 2) + "-x7k2p" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := targetPod("1")
			w := newWorld(t, fluentPVC(), pod)
			w.settled()
			w.bind()
			w.endPod(pod)
			w.settled()
			user := targetPod("2")
			user.Name, user.Annotations = tc.pod(w.wantPhase(sondev1.BindingFinalizerJobApplied)), nil
			user.Status.Phase = corev1.PodRunning
			if err := w.Create(t.Context(), user); err != nil {
				t.Fatal(err)
			}
			w.endJob(1, batchv1.JobComplete)
			w.pass()
			c := apimeta.FindStatusCondition(w.wantPhase(sondev1.BindingFinalizerJobSucceeded).Status.Conditions, sondev1.ConditionClaimCreated)
			if c.Reason != sondev1.ReasonClaimDeleted || strings.Contains(c.Message, user.Name) != tc.want {
				t.Errorf("condition %+v, want ClaimDeleted, with Pod %s: %t", c, user.Name, tc.want)
			}
			before := w.writes
			w.endPod(user)
			if w.settled(); !tc.want && (w.writes != before+3 || w.binding() != nil) {
				t.Errorf("%d writes, want 3: the deletions of Job, claim and binding", w.writes-before)
			}
		})
	}
}

// TestStaleCacheRepeatsNoWrite: passes whose caches lag behind an earlier pass create, patch and delete nothing again.
func TestStaleCacheRepeatsNoWrite(t *testing.T) {
	// hide keeps objects of one type out of a cache, and old shows an old version of them.
	hide := func(c client.Client, what client.Object) client.Client {
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", what) {
				return apierrors.NewNotFound(corev1.Resource("x"), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		}})
	}
	old := func(c client.Client, was client.Object) client.Client {
		return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", was) {
				reflect.ValueOf(o).Elem().Set(reflect.ValueOf(was.DeepCopyObject()).Elem())
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		}})
	}
	// stale makes a pass, and reports the writes of a second one with stale caches.
	stale := func(t *testing.T, w *world, spoil func()) {
		t.Helper()
		spoil()
		before := w.writes
		if result := w.pass(); w.writes != before {
			t.Errorf("%d writes, want none; next pass after %s", w.writes-before, result.RequeueAfter)
		}
	}
	t.Run("the binding is not there yet", func(t *testing.T) {
		w := newWorld(t, fluentPVC(), targetPod("1"))
		w.settled()
		stale(t, w, func() { w.r.Client = hide(w.r.Client, &sondev1.FluentPVCBinding{}) })
	})
	t.Run("the binding of a lost one is not there yet", func(t *testing.T) {
		w, delPod, delBinding, _ := bound(t)
		delBinding()
		delPod()
		w.settled()
		stale(t, w, func() { w.r.Client = hide(w.r.Client, &sondev1.FluentPVCBinding{}) })
	})
	t.Run("the status has another phase", func(t *testing.T) {
		pod := targetPod("1")
		w := newWorld(t, fluentPVC(), pod)
		w.settled()
		w.bind()
		w.endPod(pod)
		w.settled()
		applied := w.wantPhase(sondev1.BindingFinalizerJobApplied)
		w.endJob(1, batchv1.JobFailed)
		w.pass()
		w.wantPhase(sondev1.BindingOutOfUse)
		stale(t, w, func() { w.r.Client = old(w.r.Client, applied) })
	})
	t.Run("claim and Job are not being deleted yet", func(t *testing.T) {
		pod := targetPod("1")
		w := newWorld(t, fluentPVC(), pod)
		w.settled()
		w.bind()
		w.endPod(pod)
		w.settled()
		w.endJob(1, batchv1.JobComplete)
		w.pass()
		b := w.wantPhase(sondev1.BindingFinalizerJobSucceeded)
		claim, job := w.claim(), &batchv1.Job{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: jobName(b, 1)}, job); err != nil {
			t.Fatal(err)
		}
		w.pass()
		stale(t, w, func() {
			cached := fake.NewClientBuilder().WithScheme(w.Scheme()).WithObjects(claim, job).Build()
			w.r.Own = cached
		})
	})
	t.Run("the binding is still there", func(t *testing.T) {
		pod := targetPod("1")
		w := newWorld(t, fluentPVC(), pod)
		w.settled()
		w.bind()
		w.endPod(pod)
		w.settled()
		w.endJob(1, batchv1.JobComplete)
		w.pass()
		b := w.wantPhase(sondev1.BindingFinalizerJobSucceeded)
		w.settled()
		stale(t, w, func() { w.r.Client = old(w.r.Client, b) })
	})
}

// TestChangedMetadataIsNoConflict: a user who annotates a binding costs no refused patch.
func TestChangedMetadataIsNoConflict(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	b := w.wantPhase(sondev1.BindingFinalizerJobApplied)
	w.endJob(1, batchv1.JobFailed)
	cached := b.DeepCopy()
	b.Annotations = map[string]string{"example.com/note": "x"}
	if err := w.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if b, ok := o.(*sondev1.FluentPVCBinding); ok {
			cached.DeepCopyInto(b)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}})
	before := w.writes
	w.pass()
	if w.writes != before+1 {
		t.Errorf("%d writes, want 1", w.writes-before)
	}
	if b := w.wantPhase(sondev1.BindingOutOfUse); b.Annotations["example.com/note"] != "x" {
		t.Errorf("annotations %v: the user's is gone", b.Annotations)
	}
}

func TestJob(t *testing.T) {
	b := BuildBinding(fluentPVC(), sondev1.ObjectReference{Name: "web-1", UID: "pod-1"}, types.NamespacedName{Namespace: "shop", Name: claimName})
	b.UID = "b-1"
	job, err := BuildJob(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	container := &job.Spec.Template.Spec.Containers[0]
	if job.Name != claimName+"-2" || job.Spec.TTLSecondsAfterFinished != nil || !metav1.IsControlledBy(job, b) ||
		len(container.VolumeMounts) != 1 || container.VolumeMounts[0].MountPath != "/data" ||
		job.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != claimName {
		t.Errorf("Job %+v", job)
	}
}

func TestAttempts(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.settled()
		w.wantPhase(sondev1.BindingFinalizerJobApplied)
		w.endJob(attempt, batchv1.JobFailed)
		w.settled()
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	b := w.wantPhase(sondev1.BindingFinalizerJobFailed)
	c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionFinalized)
	for _, want := range []string{"3 finalizer Jobs", claimName + "-3", "retry " + claimName + " -n shop", "discard " + claimName + " -n shop"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("message %q does not say %q", c.Message, want)
		}
	}
	b.Annotations = map[string]string{sondev1.AnnotationRetry: "now"}
	if err := w.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if b = w.wantPhase(sondev1.BindingFinalizerJobApplied); b.Status.Attempt != 4 || b.Status.Failures != 0 {
		t.Errorf("attempt %d with %d failures, want 4 with none", b.Status.Attempt, b.Status.Failures)
	}
	if w.claim() == nil {
		t.Error("the claim is gone")
	}
}

func TestDiscard(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	b := w.wantPhase(sondev1.BindingFinalizerJobApplied)
	b.Annotations = map[string]string{sondev1.AnnotationDiscard: ""}
	if err := w.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if w.claim() != nil || w.binding() != nil {
		t.Errorf("claim %v and binding %v are left", w.claim(), w.binding())
	}
}

// A user withdraws the request before the cache has that change.
func TestWithdrawnDiscard(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	w.wantPhase(sondev1.BindingFinalizerJobApplied)
	cached := w.r.Client.(client.WithWatch)
	w.r.Client = interceptor.NewClient(cached, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		if b, ok := o.(*sondev1.FluentPVCBinding); ok {
			b.Annotations = map[string]string{sondev1.AnnotationDiscard: ""}
		}
		return err
	}})
	if result := w.pass(); result.RequeueAfter != behindDelay {
		t.Errorf("next pass after %s, want %s", result.RequeueAfter, behindDelay)
	}
	w.wantPhase(sondev1.BindingFinalizerJobApplied)
}

// A pass that read the binding before its status was written writes nothing, whether its cache has the claim or not: the API server would
// refuse it.
func TestStalePassWritesNothing(t *testing.T) {
	for name, own := range map[string]func(*world) client.Reader{
		"without the claim": func(w *world) client.Reader { return fake.NewClientBuilder().WithScheme(w.Scheme()).Build() },
		"with the claim":    func(w *world) client.Reader { return w.Client },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fluentPVC(), targetPod("1"))
			w.settled()
			stale, writes := w.binding(), w.writes
			stale.Status = sondev1.FluentPVCBindingStatus{}
			stale.ResourceVersion = "1"
			w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if b, ok := o.(*sondev1.FluentPVCBinding); ok {
					stale.DeepCopyInto(b)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			w.r.Own = own(w)
			if result := w.pass(); result.RequeueAfter == 0 {
				t.Error("no further pass")
			}
			if w.writes != writes {
				t.Errorf("%d writes, want none", w.writes-writes)
			}
		})
	}
}

// A retry that was requested in time, while the operator was paused, wins over the end of failedRetention.
func TestRetryWhilePaused(t *testing.T) {
	f := fluentPVC()
	f.Spec.Finalizer = sondev1.FinalizerPolicy{MaxAttempts: 1, FailedRetention: "1h"}
	pod := targetPod("1")
	w := newWorld(t, f, pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	w.endJob(1, batchv1.JobFailed)
	w.settled()
	b := w.wantPhase(sondev1.BindingFinalizerJobFailed)
	b.Annotations = map[string]string{sondev1.AnnotationRetry: "now"}
	if err := w.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(noon.Add(2 * time.Hour))
	w.settled()
	if b := w.wantPhase(sondev1.BindingFinalizerJobApplied); b.Status.Attempt != 2 || w.claim() == nil {
		t.Errorf("attempt %d, claim %v", b.Status.Attempt, w.claim())
	}
}

// The Pods of earlier Jobs are found by the beginning of the Jobs' names, also when these are cut.
func TestNamesOfJobs(t *testing.T) {
	for length := 1; length <= 60; length++ {
		b := &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", length)}}
		if length > 20 {
			b.Name = strings.Repeat("a", length-20) + "-01234567-abcdefghij"
		}
		for _, attempt := range []int32{1, 99, 100, 12345, math.MaxInt32} {
			if name := jobName(b, attempt); !strings.HasPrefix(name, jobPrefix(b)) || len(name) > 63 {
				t.Errorf("Job %s of binding %s, whose Jobs begin with %s", name, b.Name, jobPrefix(b))
			}
		}
	}
}

// Nothing is created for a Pod that the webhook did not make as it is, nor for one that has ended.
func TestNoBinding(t *testing.T) {
	forged, copied, ended := targetPod("1"), targetPod("2"), targetPod("3")
	later, unnamed, bare, powerful := targetPod("4"), targetPod("5"), targetPod("6"), targetPod("7")
	delete(unnamed.Annotations, sondev1.KeyFluentPVC)
	bare.Spec.Containers = bare.Spec.Containers[:1]
	later.Annotations[sondev1.KeyFluentPVC] = "metrics"
	powerful.Spec.ServiceAccountName = "other"
	forged.Annotations[sondev1.AnnotationClaim] += "00"
	copied.Annotations[sondev1.AnnotationClaim] = claim.Ref{FluentPVC: "logs", Claim: claimName}.Sign(key, "bank")
	ended.Status.Phase = corev1.PodSucceeded
	for name, pod := range map[string]*corev1.Pod{
		"forged": forged, "of another namespace": copied, "ended": ended,
		"names another": later, "names none": unnamed, "without the sidecar": bare, "of another ServiceAccount": powerful,
	} {
		t.Run(name, func(t *testing.T) {
			f := fluentPVC()
			f.Spec.PVCFinalizerJobSpecTemplate.Template.Spec.ServiceAccountName = "uploader"
			if pod != powerful {
				pod.Spec.ServiceAccountName = "uploader"
			}
			w := newWorld(t, f, pod)
			if n := w.settled(); n != 0 || w.binding() != nil {
				t.Errorf("%d writes, binding %v", n, w.binding())
			}
		})
	}
}

// A FluentPVC without a valid stamp injects nothing, also if the webhook for Pods has let a Pod pass before.
func TestNoBindingWithoutAStamp(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.invalid = errors.New("the stamp is not valid")
	if n := w.settled(); n != 0 || w.binding() != nil || w.claim() != nil {
		t.Errorf("%d writes, binding %v, claim %v: want none", n, w.binding(), w.claim())
	}
	if event := <-w.events.Events; !strings.Contains(event, "ClaimRefused") || !strings.Contains(event, "the stamp is not valid: delete the Pod") {
		t.Errorf("event %q", event)
	}
	w.invalid = nil // the control
	w.settled()
	w.wantPhase(sondev1.BindingReady)
}

// A cluster admin has closed the namespace after the webhook had signed the claim's name.
func TestNoBindingInAClosedNamespace(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		t.Run(value, func(t *testing.T) {
			w := newWorld(t, fluentPVC(), targetPod("1"))
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{sondev1.LabelOptOut: value}}}
			if err := w.Update(t.Context(), shop); err != nil {
				t.Fatal(err)
			}
			w.settled()
			if closed := w.binding() == nil; closed != want {
				t.Fatalf("binding %v", w.binding())
			}
			if !want {
				return
			}
			if event := <-w.events.Events; !strings.Contains(event, "ClaimRefused") || !strings.Contains(event, sondev1.LabelOptOut) {
				t.Errorf("event %q", event)
			}
		})
	}
}

// A quota or a policy may refuse bindings. Only an Event can say so: the Pod has no binding.
func TestRefusedBinding(t *testing.T) {
	w := newWorld(t, fluentPVC(), targetPod("1"))
	w.refuse = func(o client.Object) error {
		if _, ok := o.(*sondev1.FluentPVCBinding); ok {
			return apierrors.NewForbidden(sondev1.GroupVersion.WithResource("fluentpvcbindings").GroupResource(), o.GetName(), errors.New("exceeded quota: objects"))
		}
		return nil
	}
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: claimName}})
	if !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want the refusal: the pass is repeated", err)
	}
	if len(w.events.Events) != 1 {
		t.Fatalf("%d Events, want one", len(w.events.Events))
	}
	if event := <-w.events.Events; !strings.Contains(event, "ClaimRefused") || !strings.Contains(event, "exceeded quota: objects") {
		t.Errorf("event %q", event)
	}
}

func TestPodOfADeletedFluentPVC(t *testing.T) {
	w := newWorld(t, targetPod("1"))
	w.pass()
	if event := <-w.events.Events; w.binding() != nil || !strings.Contains(event, "create the FluentPVC again, or delete the Pod") {
		t.Errorf("binding %v, event %q", w.binding(), event)
	}
}

// A user who changes a Pod again and again wakes the controller each time.
func TestEventsAreBounded(t *testing.T) {
	bare := targetPod("1")
	bare.Spec.Containers = bare.Spec.Containers[:1]
	for name, objects := range map[string][]client.Object{"no FluentPVC": {targetPod("1")}, "no sidecar": {fluentPVC(), bare}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objects...)
			for range 2 * eventlimit.Burst {
				w.pass()
			}
			if n := len(w.events.Events); n != eventlimit.Burst {
				t.Errorf("%d Events, want %d", n, eventlimit.Burst)
			}
		})
	}
}

func TestForeignClaimIsNotTouched(t *testing.T) {
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claimName, UID: "theirs"}}
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod, foreign)
	if result := w.pass(); result.RequeueAfter != minRefusedDelay {
		t.Errorf("next pass after %s, want %s", result.RequeueAfter, minRefusedDelay)
	}
	b := w.wantPhase(sondev1.BindingPending)
	if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionClaimCreated); c.Reason != sondev1.ReasonClaimConflict {
		t.Errorf("condition %+v", c)
	}
	w.endPod(pod)
	w.settled()
	if w.binding() != nil || w.claim() == nil || w.claim().UID != "theirs" {
		t.Errorf("binding %v, claim %v: want the foreign claim alone", w.binding(), w.claim())
	}
}

func TestRefusedClaim(t *testing.T) {
	resource := corev1.Resource("persistentvolumeclaims")
	forbidden := func(why string) *apierrors.StatusError {
		return apierrors.NewForbidden(resource, claimName, errors.New(why))
	}
	ending := forbidden("the namespace is being terminated")
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	withdrawn := map[string]bool{"create persistentvolumeclaims": true}
	tests := map[string]struct {
		err        error
		missing    map[string]bool
		unanswered error
		wantReason string
		wantText   string
		wantAsked  int
	}{
		"right withdrawn": {
			err: forbidden(`User "m" cannot create resource "persistentvolumeclaims" in API group "" in the namespace "shop"`), missing: withdrawn,
			wantReason: sondev1.ReasonNotPermitted, wantText: "kubectl sonde fluentpvc allow -n shop", wantAsked: 1,
		},
		"right withdrawn, in other words": {
			err: forbidden("no"), missing: withdrawn, wantReason: sondev1.ReasonNotPermitted, wantText: "kubectl sonde fluentpvc allow -n shop", wantAsked: 1,
		},
		"another right withdrawn": {err: forbidden("exceeded quota"), missing: map[string]bool{"create jobs": true}, wantReason: sondev1.ReasonClaimRefused, wantText: "exceeded quota", wantAsked: 1},
		"quota":                   {err: forbidden("exceeded quota: storage"), wantReason: sondev1.ReasonClaimRefused, wantText: "exceeded quota: storage", wantAsked: 1},
		"a policy":                {err: forbidden("volumes cannot be this large"), wantReason: sondev1.ReasonClaimRefused, wantText: "volumes cannot be this large", wantAsked: 1},
		"no answer about the right": {
			err: forbidden("a policy"), unanswered: errors.New("no connection"), wantReason: sondev1.ReasonClaimRefused, wantText: "a policy", wantAsked: 1,
		},
		"a webhook without a code": {err: apierrors.NewBadRequest("admission webhook denied the request: too large"), wantReason: sondev1.ReasonClaimRefused, wantText: "too large"},
		"a webhook that fails":     {err: apierrors.NewInternalError(errors.New("failed calling webhook")), wantReason: sondev1.ReasonClaimRefused, wantText: "failed calling webhook"},
		"a webhook that answers 500": {
			err:        &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: `admission webhook "w" denied the request: no cache`}},
			wantReason: sondev1.ReasonClaimRefused, wantText: "no cache",
		},
		"namespace ends":  {err: ending, missing: withdrawn, wantReason: sondev1.ReasonClaimRefused, wantText: "is being terminated"},
		"not a valid one": {err: apierrors.NewInvalid(sondev1.GroupVersion.WithKind("PersistentVolumeClaim").GroupKind(), claimName, nil), wantReason: sondev1.ReasonClaimRefused, wantText: "is invalid"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := targetPod("1")
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
			w := newWorld(t, fluentPVC(), pod)
			w.missing, w.unanswered = tc.missing, tc.unanswered
			w.refuse = func(o client.Object) error {
				if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
					return tc.err
				}
				return nil
			}
			w.pass()
			b := w.wantPhase(sondev1.BindingPending)
			c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionClaimCreated)
			if c.Reason != tc.wantReason || !strings.Contains(c.Message, tc.wantText) {
				t.Errorf("condition %+v", c)
			}
			if w.asked != tc.wantAsked {
				t.Errorf("%d reviews, want %d", w.asked, tc.wantAsked)
			}
			if n := len(w.events.Events); n != 3 {
				t.Errorf("%d Events, want one each on binding, Pod and ReplicaSet", n)
			}
			w.clock.SetTime(noon.Add(time.Hour))
			if result := w.pass(); result.RequeueAfter != maxRefusedDelay {
				t.Errorf("after an hour the next pass is after %s, want %s", result.RequeueAfter, maxRefusedDelay)
			}
			w.refuse = func(client.Object) error { return nil }
			w.settled()
			w.wantPhase(sondev1.BindingReady)
		})
	}
}

// A refused deletion has its reason in a condition, and is tried again more and more slowly.
func TestRefusedDeletion(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.endPod(pod)
	w.settled()
	w.endJob(1, batchv1.JobComplete)
	w.pass()
	w.missing = map[string]bool{"delete jobs": true}
	w.refuse = func(client.Object) error {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), claimName, errors.New(`User "m" cannot delete resource "persistentvolumeclaims" in API group "" in the namespace "shop"`))
	}
	if result := w.pass(); result.RequeueAfter != minRefusedDelay {
		t.Errorf("next pass after %s, want %s", result.RequeueAfter, minRefusedDelay)
	}
	b := w.wantPhase(sondev1.BindingFinalizerJobSucceeded)
	if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionClaimCreated); c.Reason != sondev1.ReasonNotPermitted || c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
	w.clock.SetTime(noon.Add(time.Hour))
	if result := w.pass(); result.RequeueAfter != maxRefusedDelay {
		t.Errorf("after an hour the next pass is after %s, want %s", result.RequeueAfter, maxRefusedDelay)
	}
}

// A claim whose data may be given up is deleted only when the status says Discarded: the binding in the cache may be stale.
func TestDiscardedBeforeDeleted(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.endPod(pod)
	w.pass()
	w.wantPhase(sondev1.BindingDiscarded)
	if w.claim() == nil {
		t.Error("the claim was deleted in the pass that gave it up")
	}
	w.settled()
	if w.claim() != nil || w.binding() != nil {
		t.Errorf("claim %v and binding %v are left", w.claim(), w.binding())
	}
}

func TestEviction(t *testing.T) {
	pod := targetPod("1")
	w := newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: running}, {Name: "sidecar", State: exited}}}
	if err := w.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.refuse = func(o client.Object) error {
		if _, ok := o.(*corev1.Pod); ok {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		}
		return nil
	}
	for _, want := range []time.Duration{minBlockedDelay, 20 * time.Second, maxBlockedDelay} {
		if result := w.pass(); result.RequeueAfter != want {
			t.Errorf("next pass after %s, want %s", result.RequeueAfter, want)
		}
		w.clock.SetTime(w.clock.Now().Add(10 * want))
	}
	b := w.wantPhase(sondev1.BindingReady)
	if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionSidecarHealthy); c.Reason != sondev1.ReasonEvictionBlocked {
		t.Errorf("condition %+v", c)
	}
	w.refuse = func(client.Object) error { return nil }
	w.pass()
	b = w.wantPhase(sondev1.BindingReady)
	if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionSidecarHealthy); c.Reason != sondev1.ReasonSidecarEnded {
		t.Errorf("condition %+v", c)
	}
}

func TestPause(t *testing.T) {
	w := newWorld(t, fluentPVC(), targetPod("1"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: "sonde-config"}, Data: map[string]string{"paused": "true"},
	})
	if n := w.settled(); n != 0 {
		t.Errorf("%d writes while paused", n)
	}
}
