package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestFirstPass checks the status and the objects after the first passes, before any agent runs.
func TestFirstPass(t *testing.T) {
	t.Parallel()
	hub := func(pc *sondev1.PacketCapture) { pc.Namespace, pc.Spec.TargetNamespace = "hub", "shop" }
	private := func(pc *sondev1.PacketCapture) { pc.Namespace, pc.Spec.TargetNamespace = "private", "shop" }
	filter := func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "vlan" }
	ref := func(kind sondev1.TargetKind, name string) func(*sondev1.PacketCapture) {
		return func(pc *sondev1.PacketCapture) {
			pc.Spec.TargetDeployment, pc.Spec.TargetRef = "", &sondev1.TargetReference{Kind: kind, Name: name}
		}
	}
	syntax := &pcapfilter.SyntaxError{Expression: "vlan", Message: "not here"}
	cases := map[string]struct {
		capture       func(*sondev1.PacketCapture)
		world         func(*world)
		objects       []client.Object
		wantJobs      []string
		wantPhase     sondev1.Phase
		wantCondition [2]string // type, and status and reason
		wantMessage   string    // part of some condition's message
		wantEntries   []string  // Pod, phase and reason
	}{
		"no stamp": {
			world: func(w *world) { w.stampErr = fmt.Errorf("it was %w: create it again", stamp.ErrMissing) }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionAdmitted, "False NotAdmitted"}, wantMessage: "create it again",
		},
		"a forged stamp": {
			world: func(w *world) { w.stampErr = fmt.Errorf("%w", stamp.ErrInvalid) }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionAdmitted, "False NotAdmitted"},
		},
		"a refused requester does not learn whether the target exists": {
			world:     func(w *world) { w.stampErr = stamp.ErrMissing },
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionTargetFound, "Unknown NotAdmitted"},
		},
		"the target's namespace was created again": {
			world: func(w *world) { w.claim.TargetNamespaceUID = "earlier" }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionAdmitted, "False NamespaceReplaced"}, wantMessage: "created again",
		},
		"the target's namespace is gone": {
			capture:   func(pc *sondev1.PacketCapture) { pc.Namespace, pc.Spec.TargetNamespace = "hub", "gone" },
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionComplete, "False NamespaceReplaced"}, wantMessage: "was deleted",
		},
		"a foreign target from a hub": {
			capture: hub, objects: deployment("web-1"),
			wantJobs: []string{"web-1-qwer"}, wantPhase: sondev1.PhasePending, wantCondition: [2]string{sondev1.ConditionAdmitted, "True Admitted"},
			wantEntries: []string{"web-1 Pending Pending"},
		},
		"a foreign target from elsewhere": {
			capture: private, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionAdmitted, "False HubNotAllowed"}, wantMessage: sondev1.LabelHub + "=true",
		},
		"no right": {
			world: func(w *world) { w.deny["shop"] = "alice lacks the verb capture" }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionAdmitted, "False AccessRevoked"}, wantMessage: "lacks the verb capture",
		},
		"no such target": {
			wantPhase: sondev1.PhasePending, wantCondition: [2]string{sondev1.ConditionTargetFound, "False TargetNotFound"}, wantMessage: `no Deployment "web" in namespace "shop"`,
		},
		"no such target for too long": {
			world:     func(w *world) { w.clock.Step(targetTimeout) },
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionComplete, "False TargetNotFound"}, wantMessage: "none appeared within",
		},
		"no Pods": {
			objects:   deployment(),
			wantPhase: sondev1.PhasePending, wantCondition: [2]string{sondev1.ConditionTargetFound, "False NoPods"},
		},
		"only a Pod being deleted": {
			objects: append(deployment(), webPod("web-1", func(p *corev1.Pod) {
				now := metav1.NewTime(dawn)
				p.DeletionTimestamp, p.Finalizers = &now, []string{"example.test/kept"}
			})),
			wantPhase: sondev1.PhasePending, wantCondition: [2]string{sondev1.ConditionTargetFound, "True TargetFound"},
		},
		"stopped before it began": {
			capture: func(pc *sondev1.PacketCapture) { pc.Spec.Stop = true }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionComplete, "False Stopped"},
		},
		"a single Pod": {
			capture: ref(sondev1.TargetPod, "web-1"), objects: []client.Object{webPod("web-1"), webPod("web-2")},
			wantJobs: []string{"web-1-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-1 Pending Pending"},
		},
		"a hostNetwork Pod, and the right": {
			objects:  append(deployment("web-1"), webPod("web-2", hostNetwork)),
			wantJobs: []string{"web-1-qwer", "web-2-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-1 Pending Pending", "web-2 Pending Pending"},
		},
		"a hostNetwork Pod, and no right": {
			world: func(w *world) { w.deny["nodes"] = "lacks capture on nodes" }, objects: append(deployment("web-1"), webPod("web-2", hostNetwork)),
			wantJobs: []string{"web-1-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-2 Failed HostNetworkDenied", "web-1 Pending Pending"},
		},
		"only hostNetwork Pods, and no right": {
			world: func(w *world) { w.deny["nodes"] = "lacks capture on nodes" }, objects: append(deployment(), webPod("web-2", hostNetwork)),
			wantPhase: sondev1.PhaseFailed, wantEntries: []string{"web-2 Failed HostNetworkDenied"},
			wantCondition: [2]string{sondev1.ConditionComplete, "False HostNetworkDenied"}, wantMessage: "lacks capture on nodes",
		},
		"a sandboxed runtime, by its handler": {
			objects: append(deployment("web-1"), webPod("web-2", runtimeClass("secure")),
				&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "secure"}, Handler: "kata-qemu"}),
			wantJobs: []string{"web-1-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-2 Failed SandboxedRuntime", "web-1 Pending Pending"},
		},
		"a sandboxed runtime, whose class is gone": {
			objects:   append(deployment(), webPod("web-2", runtimeClass("gvisor"))),
			wantPhase: sondev1.PhaseFailed, wantEntries: []string{"web-2 Failed SandboxedRuntime"}, wantMessage: `RuntimeClass "gvisor"`,
		},
		"an ordinary runtime": {
			objects:  append(deployment(), webPod("web-2", runtimeClass("nvidia"))),
			wantJobs: []string{"web-2-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-2 Pending Pending"},
		},
		"a filter that does not compile": {
			capture: filter, world: func(w *world) { w.filter[pcapfilter.LinkEthernet] = syntax }, objects: deployment("web-1"),
			wantPhase: sondev1.PhaseFailed, wantCondition: [2]string{sondev1.ConditionComplete, "False FilterNotCompilable"}, wantMessage: `filter "vlan": not here`,
		},
		"a filter that compiles for Ethernet alone": {
			capture: filter, world: func(w *world) { w.filter[pcapfilter.LinkRaw] = syntax }, objects: deployment("web-1"),
			wantJobs: []string{"web-1-qwer"}, wantPhase: sondev1.PhasePending, wantEntries: []string{"web-1 Pending Pending"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pc := newCapture()
			if tc.capture != nil {
				tc.capture(pc)
			}
			w := newWorld(t, pc, tc.objects...)
			if tc.world != nil {
				tc.world(w)
			}
			w.settle()
			status := w.capture().Status
			if diff := cmp.Diff(tc.wantJobs, w.jobNames()); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantEntries, entries(status)); diff != "" || status.Phase != tc.wantPhase {
				t.Errorf("phase %s, want %s; entries (-want +got):\n%s", status.Phase, tc.wantPhase, diff)
			}
			if tc.wantCondition[0] != "" && w.condition(tc.wantCondition[0]) != tc.wantCondition[1] {
				t.Errorf("condition %s is %s, want %s", tc.wantCondition[0], w.condition(tc.wantCondition[0]), tc.wantCondition[1])
			}
			messages := ""
			for _, c := range status.Conditions {
				messages += c.Message + "\n"
			}
			if len(status.Conditions) != 6 || !strings.Contains(messages, tc.wantMessage) {
				t.Errorf("conditions say %q, want six, and %q", messages, tc.wantMessage)
			}
			if tc.wantPhase.Final() && len(w.left()) > 0 {
				t.Errorf("left of a capture that never ran: %v", w.left())
			}
		})
	}
}

// TestErrorsAreRetried checks that an unknown answer creates nothing and ends nothing.
func TestErrorsAreRetried(t *testing.T) {
	t.Parallel()
	boom := errors.New("no connection")
	cases := map[string]func(*world){
		"stamp":           func(w *world) { w.stampErr = boom },
		"review":          func(w *world) { w.accessErr = boom },
		"filter":          func(w *world) { w.filter[pcapfilter.LinkEthernet] = boom },
		"list":            func(w *world) { w.listErr = func(client.ObjectList) error { return boom } },
		"create":          func(w *world) { w.createErr = func(client.Object) error { return boom } },
		"create jobs":     func(w *world) { w.createErr = failFor[*batchv1.Job](boom) },
		"create a secret": func(w *world) { w.createErr = failFor[*corev1.Secret](boom) },
	}
	for name, breakIt := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "tcp" }), deployment("web-1")...)
			breakIt(w)
			for range 2 {
				if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key}); !errors.Is(err, boom) {
					t.Fatalf("Reconcile error = %v, want %v", err, boom)
				}
			}
			if phase, c := w.capture().Status.Phase, w.condition(sondev1.ConditionComplete); phase.Final() || name != "list" && c != "Unknown ReconcileError" {
				t.Errorf("phase %s, Complete %s: want the capture to continue", phase, c)
			}
			if len(w.jobs()) > 0 {
				t.Error("a Job was created nevertheless")
			}
			// The next pass has no error.
			w.stampErr, w.accessErr, w.createErr, w.listErr = nil, nil, nil, nil
			clear(w.filter)
			w.settle()
			if len(w.jobs()) != 1 || w.condition(sondev1.ConditionComplete) != "Unknown Pending" {
				t.Errorf("%d jobs, Complete %s: want one, and no trace of the error", len(w.jobs()), w.condition(sondev1.ConditionComplete))
			}
		})
	}
}

// TestEndReasons checks what ends a running capture, and which results stay.
func TestEndReasons(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happens     func(*world)
		account     *account.Account // of probes that were asked to end
		wantStops   []string
		wantPhase   sondev1.Phase
		wantEntries []string
		wantReason  string // of Complete
	}{
		"stopped": {
			happens: func(w *world) { pc := w.capture(); pc.Spec.Stop = true; w.update(pc) }, account: ended(sondev1.ReasonStopped),
			wantStops: []string{"10.1.1.1 Stopped"}, wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed Stopped"}, wantReason: "True Stopped",
		},
		"the keeper claims that it was stopped": {
			happens:   func(w *world) { w.agents(w.end(asked(sondev1.ReasonStopped))); w.clock.Step(31 * time.Second) },
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete StopNotRequested"}, wantReason: "False StopNotRequested",
		},
		"the keeper claims that the Pod is gone": {
			happens:   func(w *world) { w.agents(w.end(asked(sondev1.ReasonTargetGone))); w.clock.Step(31 * time.Second) },
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete StopNotRequested"}, wantReason: "False StopNotRequested",
		},
		"the probe finds no process, and the Pod still exists": {
			happens:   func(w *world) { w.agents(w.end(done(sondev1.ReasonTargetGone))); w.clock.Step(31 * time.Second) },
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete TargetNotGone"}, wantReason: "False TargetNotGone",
		},
		"the probe finds no process, and the Pod is gone a moment later": {
			happens: func(w *world) {
				w.clock.Step(31 * time.Second)
				w.agents(w.end(done(sondev1.ReasonTargetGone)))
				w.settle()
				if e := entries(w.capture().Status); !slices.Equal(e, []string{"web-1 Capturing Capturing"}) {
					w.t.Errorf("entries %v before the API server can know that the Pod is gone", e)
				}
				w.remove(webPod("web-1"))
			},
			wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the probe finds no process, and the Pod ends a moment later": {
			happens: func(w *world) {
				w.clock.Step(31 * time.Second)
				w.agents(w.end(done(sondev1.ReasonTargetGone)))
				w.settle()
				w.update(webPod("web-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
			},
			wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the probe finds no process, and the Pod is being deleted": {
			happens: func(w *world) {
				kept := webPod("web-1", func(p *corev1.Pod) { p.Finalizers = []string{"example.test/kept"} })
				w.update(kept)
				w.remove(kept)
				w.clock.Step(31 * time.Second)
				w.agents(w.end(done(sondev1.ReasonTargetGone)))
			},
			wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the keeper ends it, and the user stops it later": {
			happens: func(w *world) {
				w.agents(w.end(asked(sondev1.ReasonStopped))) // at dawn
				pc := w.capture()
				pc.Spec.Stop = true
				w.update(pc)
				w.stoppedAt(dawn.Add(time.Minute))
			},
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete StopNotRequested"}, wantReason: "False StopNotRequested",
		},
		"the user stops it, and another manager has asked the keeper": {
			happens: func(w *world) {
				pc := w.capture()
				pc.Spec.Stop = true
				w.update(pc)
				w.stoppedAt(dawn.Add(-time.Second))
				w.agents(w.end(asked(sondev1.ReasonStopped)))
			},
			wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed Stopped"}, wantReason: "True Stopped",
		},
		"the keeper ends it, and the Pod ends later": {
			happens: func(w *world) {
				w.agents(w.end(asked(sondev1.ReasonTargetGone))) // at dawn
				w.update(webPod("web-1", func(p *corev1.Pod) {
					p.Status.Phase = corev1.PodSucceeded
					p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
						Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(dawn.Add(time.Minute))},
					}}}
				}))
				w.clock.Step(31 * time.Second)
			},
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete StopNotRequested"}, wantReason: "False StopNotRequested",
		},
		"the right is lost": {
			happens: func(w *world) { w.deny["shop"] = "no more" }, account: ended(sondev1.ReasonAccessRevoked),
			wantStops: []string{"10.1.1.1 AccessRevoked"}, wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete AccessRevoked"}, wantReason: "False AccessRevoked",
		},
		"the right is lost, and the keeper does not answer": {
			happens:   func(w *world) { w.deny["shop"], w.keeperErr = "no more", errors.New("no route") },
			wantStops: []string{"10.1.1.1 AccessRevoked"}, wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete AccessRevoked"}, wantReason: "False AccessRevoked",
		},
		"the target's namespace is created again": {
			happens: func(w *world) { w.claim.TargetNamespaceUID = "earlier" }, account: ended(sondev1.ReasonAccessRevoked),
			wantStops: []string{"10.1.1.1 AccessRevoked"}, wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete AccessRevoked"}, wantReason: "False NamespaceReplaced",
		},
		"the target Pod is deleted before its probe ends": {
			happens: func(w *world) { w.remove(webPod("web-1")); w.clock.Step(31 * time.Second) }, account: ended(sondev1.ReasonTargetGone),
			wantStops: []string{"10.1.1.1 TargetGone"}, wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the target Pod ends": {
			happens: func(w *world) {
				var p corev1.Pod
				w.get(client.ObjectKeyFromObject(webPod("web-1")), &p)
				p.Status.Phase = corev1.PodSucceeded
				w.update(&p)
				w.clock.Step(31 * time.Second)
			}, account: ended(sondev1.ReasonTargetGone),
			wantStops: []string{"10.1.1.1 TargetGone"}, wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the Deployment is deleted: the capture ends before its window": {
			happens: func(w *world) {
				for _, o := range deployment("web-1") {
					w.remove(o)
				}
			}, account: ended(sondev1.ReasonTargetGone),
			wantStops: []string{"10.1.1.1 TargetGone"}, wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed TargetGone"}, wantReason: "True TargetGone",
		},
		"the Pod is released by its owner, and still runs": {
			happens: func(w *world) {
				var p corev1.Pod
				w.get(client.ObjectKeyFromObject(webPod("web-1")), &p)
				p.OwnerReferences = nil
				w.update(&p)
				w.pass()
				w.clock.Step(31 * time.Second)
				w.agents(w.end(done(sondev1.ReasonDuration)))
			},
			wantPhase: sondev1.PhaseCompleted, wantEntries: []string{"web-1 Completed Duration"}, wantReason: "True Duration",
		},
		"the Job is deleted by a user": {
			happens: func(w *world) {
				for _, j := range w.jobs() {
					w.remove(&j)
				}
				w.removeAgents()
				w.clock.Step(31 * time.Second)
			},
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete NodeLost"}, wantReason: "False NodeLost",
		},
		"the agent's Pod is deleted, and its node is ready": {
			happens: func(w *world) {
				w.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				}})
				w.removeAgents()
				w.clock.Step(31 * time.Second)
			},
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete Drained"}, wantReason: "False Drained",
		},
		"the node is lost": {
			happens: func(w *world) {
				w.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
				}})
				w.clock.Step(151 * time.Second)
			},
			wantPhase: sondev1.PhaseIncomplete, wantEntries: []string{"web-1 Incomplete NodeLost"}, wantReason: "False NodeLost",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			w.agents(w.attach)
			w.settle()
			tc.happens(w)
			w.pass()
			if diff := cmp.Diff(tc.wantStops, w.stops); diff != "" {
				t.Errorf("keepers called (-want +got):\n%s", diff)
			}
			if tc.account != nil {
				w.agents(w.end(*tc.account))
			} else if w.keeperErr != nil {
				w.removeAgents() // as the garbage collector does when their Job is deleted
			}
			w.settle()
			status := w.capture().Status
			if diff := cmp.Diff(tc.wantEntries, entries(status)); diff != "" || status.Phase != tc.wantPhase {
				t.Errorf("phase %s, want %s; entries (-want +got):\n%s", status.Phase, tc.wantPhase, diff)
			}
			if got := w.condition(sondev1.ConditionComplete); got != tc.wantReason {
				t.Errorf("Complete is %s, want %s", got, tc.wantReason)
			}
			if status.CompletionTime == nil {
				t.Error("there is no completion time")
			}
		})
	}
}

// TestStopBeforeTheProbeStarted checks that the Job is deleted, since there is no probe to stop.
func TestStopBeforeTheProbeStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(func(*corev1.Pod) {})
	w.settle()
	pc := w.capture()
	pc.Spec.Stop = true
	w.update(pc)
	w.settle()
	if len(w.jobs()) != 0 || len(w.stops) != 0 {
		t.Errorf("jobs %v, stops %v: want neither", w.jobNames(), w.stops)
	}
	w.settle()
	w.check("stopped", sondev1.PhaseFailed, "False Ended", "False Stopped")
}

func TestNotStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "1h" }), deployment("web-1", "web-2")...)
	w.settle()
	w.agents(func(p *corev1.Pod) {
		if strings.HasPrefix(p.Name, "web-1") {
			w.attach(p)
		}
	})
	w.clock.Step(5 * time.Minute)
	w.settle()
	if diff := cmp.Diff([]string{"web-2 Failed NotStarted", "web-1 Capturing Capturing"}, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"web-1-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if sent := w.sent(); !strings.Contains(sent, "Warning NotStarted Pod web-2") || !strings.Contains(sent, "Normal Capturing Capturing") {
		t.Errorf("events: %s", sent)
	}
}

func TestJobRefused(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "web-1-qwer", errors.New("exceeded quota: jobs"))
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.createErr = failFor[*batchv1.Job](forbidden)
	if res := w.settle(); res.RequeueAfter != refusedDelay {
		t.Errorf("next try after %v, want %v", res.RequeueAfter, refusedDelay)
	}
	e := w.capture().Status.Pods[0]
	if e.Reason != sondev1.ReasonJobRefused || !strings.Contains(e.Message, "exceeded quota: jobs") || w.capture().Status.StartTime != nil {
		t.Errorf("entry %+v: want the API server's message, and no start time", e)
	}
	w.createErr = nil
	w.settle()
	if len(w.jobs()) != 1 || w.capture().Status.StartTime == nil {
		t.Error("the Job is not created when it is allowed again")
	}
}

func TestJobRefusedForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.createErr = failFor[*batchv1.Job](apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("exceeded quota: jobs")))
	w.settle()
	w.clock.Step(targetTimeout)
	w.settle()
	w.check("refused", sondev1.PhaseFailed, "False Ended", "False JobRefused")
	if left := w.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAgentPodRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "1h" }), deployment("web-1")...)
	w.settle()
	uid := w.jobs()[0].UID
	long := "pods \"x\" is forbidden: violates PodSecurity: " + strings.Repeat("this and that, ", 100) + "and more"
	for i, message := range []string{"old news", long} {
		w.add(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e%d", i), Namespace: operatorNamespace}, Reason: "FailedCreate", Message: message,
			InvolvedObject: corev1.ObjectReference{UID: uid}, LastTimestamp: metav1.NewTime(dawn.Add(time.Duration(i) * time.Second)),
		})
	}
	w.clock.Step(31 * time.Second)
	w.settle()
	e := w.capture().Status.Pods[0]
	if e.Phase != sondev1.PhasePending || e.Reason != sondev1.ReasonJobRefused || !strings.Contains(e.Message, "violates PodSecurity") {
		t.Errorf("entry %+v: want the newest event's message", e)
	}
	refused := func() *metav1.Condition {
		return apimeta.FindStatusCondition(w.capture().Status.Conditions, sondev1.ConditionProbesAllowed)
	}
	first := refused()
	if first.Status != metav1.ConditionFalse || first.Reason != sondev1.ReasonJobRefused || !strings.HasSuffix(first.Message, long) || !strings.Contains(first.Message, "kubectl label namespace sonde-system") {
		t.Errorf("condition %+v: want the remedy and the whole refusal", first)
	}
	w.clock.Step(time.Minute)
	w.settle()
	if diff := cmp.Diff(first, refused()); diff != "" {
		t.Errorf("condition in a later pass (-first +later):\n%s", diff)
	}
	w.clock.Step(5 * time.Minute)
	w.settle()
	if e = w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseFailed || e.Reason != sondev1.ReasonJobRefused || len(w.jobs()) != 0 {
		t.Errorf("entry %+v, %d jobs: want it failed, and no Job", e, len(w.jobs()))
	}
}

func failFor[T client.Object](err error) func(client.Object) error {
	return func(o client.Object) error {
		if _, ok := o.(T); ok {
			return err
		}
		return nil
	}
}

// asked is the account of a probe that its keeper has ended.
// stoppedAt lets the API server say when spec.stop was set.
func (w *world) stoppedAt(at time.Time) {
	w.r.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if o.GetUID() == captureUID {
				o.SetManagedFields([]metav1.ManagedFieldsEntry{{
					Manager: "kubectl-edit", Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:stop":{}}}`),
				}})
			}
			return err
		},
	})
}

func asked(reason string) account.Account { a := done(reason); a.Asked = true; return a }

func ended(reason string) *account.Account { a := done(reason); return &a }

func hostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }

func runtimeClass(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RuntimeClassName = &name }
}

func entries(s sondev1.CaptureStatus) []string {
	var all []string
	for _, e := range s.Pods {
		all = append(all, e.Name+" "+string(e.Phase)+" "+e.Reason)
	}
	return all
}

func (w *world) removeAgents() {
	w.t.Helper()
	var list corev1.PodList
	if err := w.client.List(w.t.Context(), &list, client.InNamespace(operatorNamespace)); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		w.remove(&list.Items[i])
	}
}
