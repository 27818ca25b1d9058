package capture

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/pass"
)

// noSuchPage is the 404 of an API server, or of a proxy before it, for a kind that it does not serve at this moment.
var noSuchPage = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)

// TestNoJobForStaleCapture checks that a capture gets no Job if it was stopped or deleted and the cache does not show that.
func TestNoJobForStaleCapture(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(*world){
		"stopped": func(w *world) {
			pc := w.capture()
			pc.Spec.Stop = true
			w.update(pc)
		},
		"deleted": func(w *world) { w.remove(w.capture()) },
		"created again": func(w *world) {
			w.remove(w.capture())
			w.add(newCapture(func(pc *sondev1.PacketCapture) { pc.UID = "the next one" }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Status.JobID = "qwer" }), deployment("web-1")...)
			old := w.capture()
			w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if pc, ok := o.(*sondev1.PacketCapture); ok {
						old.DeepCopyInto(pc)
						return nil
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			happens(w)
			w.writes = nil
			if res := w.pass(); res.RequeueAfter != pass.ConflictDelay || len(w.writes) > 0 {
				t.Errorf("next pass after %v, writes %v: want to wait for the cache", res.RequeueAfter, w.writes)
			}
		})
	}
}

// TestAllPodsOfTheStart checks that a capture that follows no Pods has each Pod that exists when it starts, also one that the cache
// lacks at that moment.
func TestAllPodsOfTheStart(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]bool{"fixed": false, "control: it follows Pods": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.FollowPods = new(follow) }), deployment("web-1", "web-2")...)
			w.hidden = "web-2"
			w.settle()
			if follow && len(w.jobs()) != 1 {
				t.Errorf("Jobs %v, want the cache to lack a Pod", w.jobNames())
			}
			w.hidden = ""
			w.add(webPod("web-3", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(time.Minute)) }))
			w.settle()
			want := []string{"web-1-qwer", "web-2-qwer"}
			if follow {
				want = append(want, "web-3-qwer")
			}
			if diff := cmp.Diff(want, w.jobNames()); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoVerdictFromStaleCache checks that there is no verdict while the cache lacks the agent's Pod, which has just started.
func TestNoVerdictFromStaleCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "1h" }), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.r.Client = withoutAgents(w)
	w.clock.Step(outcome.StartTimeout)
	w.settle()
	if e := w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseCapturing || len(w.jobs()) != 1 {
		t.Errorf("entry %+v, jobs %v: want the capture to continue", e, w.jobNames())
	}
}

// TestRequestIsCheckedLive checks that the end of a probe counts as requested if another replica may have asked for it, and the
// cache does not show why.
func TestRequestIsCheckedLive(t *testing.T) {
	t.Parallel()
	for reason, happens := range map[string]func(*world){
		sondev1.ReasonStopped: func(w *world) {
			pc := w.capture()
			pc.Spec.Stop = true
			w.update(pc)
		},
		sondev1.ReasonTargetGone: func(w *world) { w.remove(webPod("web-1")) },
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			w.agents(w.attach)
			w.settle()
			w.clock.Step(31 * time.Second)
			oldCapture, oldPod, fresh := w.capture(), webPod("web-1"), w.r.Client
			w.get(client.ObjectKeyFromObject(oldPod), oldPod)
			w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					switch o := o.(type) {
					case *sondev1.PacketCapture:
						oldCapture.DeepCopyInto(o)
						return nil
					case *corev1.Pod:
						if key.Name == oldPod.Name {
							oldPod.DeepCopyInto(o)
							return nil
						}
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			happens(w)
			w.agents(w.end(asked(reason)))
			w.pass()
			w.r.Client = fresh
			w.settle()
			if e := w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseCompleted || e.Reason != reason {
				t.Errorf("entry %+v, want Completed %s", e, reason)
			}
		})
	}
}

// TestFilesStayThroughAStaleCache checks that an ended capture keeps its files while the cache lacks the agent's Pod.
func TestFilesStayThroughAStaleCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(time.Minute)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	w.r.Client = withoutAgents(w)
	w.settle()
	if e := w.capture().Status.Pods[0]; e.AvailableUntil == nil || len(e.Files) == 0 || len(w.jobs()) != 1 {
		t.Errorf("entry %+v, Jobs %v: want the files and the Job to stay", e, w.jobNames())
	}
}

// withoutAgents returns a client whose cache has no Pod of an agent.
func withoutAgents(w *world) client.Client {
	return interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if o := (&client.ListOptions{}).ApplyOptions(opts); o.Namespace == operatorNamespace {
				if _, pods := list.(*corev1.PodList); pods {
					return nil
				}
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// TestVerdictBeforeDeletion checks that a Job stays until its verdict was written.
func TestVerdictBeforeDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.clock.Step(outcome.StartTimeout)
	w.patchErr = errors.New("no connection")
	if _, err := w.r.Reconcile(t.Context(), request(w.key)); !errors.Is(err, w.patchErr) || len(w.jobs()) != 1 {
		t.Errorf("error %v, jobs %v: want the Job to stay", err, w.jobNames())
	}
	w.patchErr = nil
	w.settle()
	if e := w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseFailed || e.Reason != sondev1.ReasonNotStarted || len(w.jobs()) != 0 {
		t.Errorf("entry %+v, jobs %v: want it failed, and none", e, w.jobNames())
	}
}

// TestNoSuchPage checks that a kind that is not served for a moment does not count as deleted.
func TestNoSuchPage(t *testing.T) {
	t.Parallel()
	starting := func(w *world) { w.settle() }
	for name, tc := range map[string]struct {
		prepare func(*world)
		object  client.Object
	}{
		"the target's namespace": {func(*world) {}, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Namespace"}}},
		"the capture":            {func(*world) {}, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PacketCapture"}}},
		"a Job that the cache does not have": {func(w *world) {
			w.settle()
			w.stale = true
		}, &batchv1.Job{}},
		"a node": {func(w *world) {
			starting(w)
			w.agents(w.attach)
			w.settle()
			w.clock.Step(time.Hour)
		}, &corev1.Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			tc.prepare(w)
			jobs := len(w.jobs())
			asked := false
			w.r.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if got, want := o.GetObjectKind().GroupVersionKind().Kind, tc.object.GetObjectKind().GroupVersionKind().Kind; got == want && sameType(o, tc.object) {
						asked = true
						return noSuchPage
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			if _, err := w.r.Reconcile(t.Context(), request(w.key)); !errors.Is(err, noSuchPage) || !asked {
				t.Errorf("error %v, asked %v: want a retry", err, asked)
			}
			if pc := w.capture(); pc.Status.Phase.Final() || len(w.jobs()) != jobs {
				t.Errorf("%s, %d jobs: want no change", pc.Status.Phase, len(w.jobs()))
			}
		})
	}
}

func sameType(a, b client.Object) bool {
	switch a.(type) {
	case *batchv1.Job:
		_, ok := b.(*batchv1.Job)
		return ok
	case *corev1.Node:
		_, ok := b.(*corev1.Node)
		return ok
	case *metav1.PartialObjectMetadata:
		_, ok := b.(*metav1.PartialObjectMetadata)
		return ok
	}
	return false
}

// TestNoEndFromStaleCache stops a capture whose Jobs are neither in the status, because its patch failed, nor in the cache.
func TestNoEndFromStaleCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "1h" }), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	pc := w.capture()
	pc.Status.Pods, pc.Spec.Stop = nil, true
	w.update(pc)
	w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if o := (&client.ListOptions{}).ApplyOptions(opts); o.Namespace == operatorNamespace {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	w.pass()
	if pc := w.capture(); pc.Status.Phase.Final() || len(pc.Status.Pods) != 1 {
		t.Errorf("status %+v: want the capture to wait for the probe", pc.Status)
	}
}

// TestMetadataDoesNotHoldTheStatus checks that a capture gets its Job and its status although its user changes metadata before each
// request of the pass. A pass over an old spec or status writes nothing.
func TestMetadataDoesNotHoldTheStatus(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*sondev1.PacketCapture)
		// job and status report that the pass writes them in spite of the change.
		job, status bool
	}{
		"an annotation": {change: func(pc *sondev1.PacketCapture) {
			metav1.SetMetaDataAnnotation(&pc.ObjectMeta, "mine", pc.ResourceVersion)
		}, job: true, status: true},
		"a label": {change: func(pc *sondev1.PacketCapture) {
			metav1.SetMetaDataLabel(&pc.ObjectMeta, "mine", pc.ResourceVersion)
		}, job: true, status: true},
		"the stamp": {change: func(pc *sondev1.PacketCapture) {
			metav1.SetMetaDataAnnotation(&pc.ObjectMeta, sondev1.AnnotationStamp, pc.ResourceVersion)
		}, status: true}, // the webhook allows no such change
		"the spec":   {change: func(pc *sondev1.PacketCapture) { pc.Spec.Stop, pc.Generation = true, pc.Generation+1 }},
		"the status": {change: func(pc *sondev1.PacketCapture) { pc.Status.Totals.Packets++ }},
		"its end":    {change: func(pc *sondev1.PacketCapture) { pc.Status.Phase = sondev1.PhaseCompleted }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Status.JobID = "qwer" }), deployment("web-1")...)
			change := func(o client.Object) {
				if o.GetName() == w.key.Name && o.GetNamespace() == w.key.Namespace {
					pc := w.capture()
					tc.change(pc)
					w.update(pc)
				}
			}
			w.r.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					change(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
					return c.Get(ctx, key, o, opts...)
				},
			})
			if res := w.pass(); (len(w.jobs()) == 1) != tc.job || (res.RequeueAfter == pass.ConflictDelay) == tc.job {
				t.Errorf("Jobs %v, next pass after %v; want a Job: %t", w.jobNames(), res.RequeueAfter, tc.job)
			}
			w = newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Status.JobID = "qwer" }), deployment("web-1")...)
			w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					change(o)
					return c.SubResource(sub).Patch(ctx, o, p, opts...)
				},
			})
			if res := w.pass(); (w.capture().Status.StartTime != nil) != tc.status || (res.RequeueAfter == pass.ConflictDelay) == tc.status {
				t.Errorf("status %+v, next pass after %v; want a new status: %t", w.capture().Status, res.RequeueAfter, tc.status)
			}
		})
	}
}
