package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

func paused(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: pause.ConfigMapName}, Data: map[string]string{pause.Key: value},
	}
}

// optOut labels the target's namespace against captures.
func optOut(w *world) {
	w.update(namespace("shop", map[string]string{sondev1.LabelOptOut: "true"}))
}

func tenant(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name}}
}

// besideAnother adds a second operator to the operator's namespace, as OLM may do.
func besideAnother(w *world) { w.add(tenant("another-operator")) }

// TestClosedBefore checks that a paused or closed capture gets no Job.
func TestClosedBefore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*world)
		want    string // Admitted
	}{
		"open":           {happens: func(*world) {}, want: "True Admitted"},
		"set to false":   {happens: func(w *world) { w.add(paused("false")) }, want: "True Admitted"},
		"paused":         {happens: func(w *world) { w.add(paused("true")) }, want: "False Paused"},
		"opted out":      {happens: optOut, want: "False OptedOut"},
		"beside another": {happens: besideAnother, want: "False NamespaceShared"},
		"beside a StatefulSet": {
			happens: func(w *world) { w.add(&appsv1.StatefulSet{ObjectMeta: tenant(agentjob.ManagerDeployment).ObjectMeta}) }, want: "False NamespaceShared",
		},
		"beside a DaemonSet": {
			happens: func(w *world) { w.add(&appsv1.DaemonSet{ObjectMeta: tenant("another-agent").ObjectMeta}) }, want: "False NamespaceShared",
		},
		"a workload elsewhere": {
			happens: func(w *world) {
				w.add(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "another"}})
			}, want: "True Admitted",
		},
		"paused, and no stamp": {happens: func(w *world) {
			w.stampErr = stamp.ErrMissing
			w.add(paused("true"))
		}, want: "False Paused"},
		"paused, and the stamp cannot be read": {happens: func(w *world) {
			w.stampErr = errors.New("no key")
			w.add(paused("true"))
		}, want: "False Paused"},
		"only the manager": {happens: func(w *world) { w.add(tenant(agentjob.ManagerDeployment)) }, want: "True Admitted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			tc.happens(w)
			w.settle()
			if got := w.condition(sondev1.ConditionAdmitted); got != tc.want {
				t.Errorf("Admitted is %q, want %q", got, tc.want)
			}
			if open := tc.want == "True Admitted"; open != (len(w.jobs()) == 1) {
				t.Errorf("jobs %v", w.jobNames())
			}
		})
	}
}

// TestClosedIsRecordedWithTheRequester checks that the audit record of an end names the requester if the stamp is valid.
// Users must not learn which workload shares the operator's namespace.
func TestClosedIsRecordedWithTheRequester(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens  func(*world)
		stampErr error
		want     string // requester
	}{
		"paused":                 {happens: func(w *world) { w.add(paused("true")) }, want: "alice"},
		"paused, forged":         {happens: func(w *world) { w.add(paused("true")) }, stampErr: stamp.ErrInvalid},
		"beside another":         {happens: besideAnother, want: "alice"},
		"beside another, forged": {happens: besideAnother, stampErr: stamp.ErrInvalid},
		"opted out":              {happens: optOut, want: "alice"},
		"no stamp":               {happens: func(*world) {}, stampErr: stamp.ErrMissing},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.stampErr = tc.stampErr
			tc.happens(w)
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			for range 3 {
				if _, err := w.r.Reconcile(ctrl.LoggerInto(t.Context(), log), ctrl.Request{NamespacedName: w.key}); err != nil {
					t.Fatal(err)
				}
			}
			all := strings.Join(lines, "\n")
			ended := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, audit.CaptureEnded) })
			if want := fmt.Sprintf("%q=%q", audit.Requester, tc.want); len(ended) != 1 || !strings.Contains(ended[0], want) {
				t.Errorf("want one end recorded with %s, got\n%s", want, all)
			}
			for _, c := range w.capture().Status.Conditions {
				if strings.Contains(c.Message, "another-operator") {
					t.Errorf("condition %s shows another tenant's workload to a user: %s", c.Type, c.Message)
				}
			}
			if strings.HasPrefix(name, "beside another") && !strings.Contains(all, "Deployment another-operator") {
				t.Errorf("the log does not name the other workload:\n%s", all)
			}
		})
	}
}

// TestRequestsAreRecorded: the log has who created and who stopped a capture, once each, and only names that were signed.
func TestRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stopped  string // by whom; "" if it is not known
		stampErr error
		want     []string
	}{
		"by another":      {stopped: "bob", want: []string{"RequestAdmitted alice", "StopRequested bob"}},
		"by an unknown":   {want: []string{"RequestAdmitted alice", "StopRequested "}},
		"a forged object": {stampErr: stamp.ErrInvalid, stopped: "bob"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.stampErr = tc.stampErr
			var got []string
			log := funcr.NewJSON(func(line string) {
				var l map[string]any
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				if a := l[audit.Key]; a == audit.RequestAdmitted || a == audit.StopRequested {
					got = append(got, fmt.Sprint(a, " ", l[audit.Requester]))
				}
			}, funcr.Options{})
			passes := func() {
				for range 3 {
					if _, err := w.r.Reconcile(ctrl.LoggerInto(t.Context(), log), ctrl.Request{NamespacedName: w.key}); err != nil {
						t.Fatal(err)
					}
				}
			}
			passes()
			pc := w.capture()
			pc.Spec.Stop = true
			if tc.stopped != "" {
				metav1.SetMetaDataAnnotation(&pc.ObjectMeta, sondev1.AnnotationStoppedBy, tc.stopped)
			}
			w.update(pc)
			passes()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequestIsRecordedOnce: passes that fail one after the other, for different reasons, make no further record of the same request.
func TestRequestIsRecordedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "tcp" }), deployment("web-1")...)
	admitted := 0
	log := funcr.NewJSON(func(line string) { admitted += strings.Count(line, `"`+audit.Key+`":"`+audit.RequestAdmitted+`"`) }, funcr.Options{})
	for _, busy := range []error{errors.New("512 filters wait"), errors.New("the compiler has ended"), nil, nil} {
		w.filter[pcapfilter.LinkEthernet] = busy
		if _, err := w.r.Reconcile(ctrl.LoggerInto(t.Context(), log), ctrl.Request{NamespacedName: w.key}); !errors.Is(err, busy) {
			t.Fatalf("error %v, want %v", err, busy)
		}
	}
	if admitted != 1 {
		t.Errorf("%d records of one request", admitted)
	}
}

// The API server refuses Events with longer notes. A probe gives the reason of its end, of up to 64 letters.
func TestNoteOfAnEndIsShort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture())
	ended := newCapture()
	ended.Status.Phase = sondev1.PhaseIncomplete
	ended.Status.Conditions = []metav1.Condition{{Type: sondev1.ConditionComplete, Reason: strings.Repeat("R", 64), Message: strings.Repeat("m", maxConditionMessage)}}
	w.r.recordEvents(t.Context(), newCapture(), ended, observation{})
	if note := strings.TrimPrefix(w.sent(), "Warning Incomplete "); len(note) > 1024 || !strings.HasPrefix(note, "RRR") {
		t.Errorf("a note of %d bytes: %.40s", len(note), note)
	}
}

// TestJobOfAnotherCaptureStays: someone deletes the Job of a capture, and another capture of the Pod makes one of the same name. That is not
// deleted in its place when the first one's requester loses the right and its keeper does not answer.
func TestJobOfAnotherCaptureStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	job := w.jobs()[0]
	w.remove(&job)
	other := job.DeepCopy()
	other.ResourceVersion, other.UID, other.Labels[sondev1.LabelUID] = "", "uid-of-another", "another-capture"
	w.add(other)
	w.deny["shop"], w.keeperErr = "no more", errors.New("no answer")
	w.pass()
	if n := len(w.stops); n != 1 {
		t.Errorf("%d calls of the keeper, want one", n)
	}
	if left := w.jobs(); len(left) != 1 || left[0].UID != other.UID {
		t.Errorf("Jobs %v, want the other capture's", w.jobNames())
	}
}

// TestClosedOnHostNetwork checks that a refused capture causes no review of nodes.
func TestClosedOnHostNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), append(deployment(), webPod("web-1", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.add(paused("true"))
	w.pass()
	if diff := cmp.Diff([]string{"10.1.1.1 Paused"}, w.stops); diff != "" {
		t.Errorf("keepers called (-want +got):\n%s", diff)
	}
}

// TestRightOnNodesOfAReleasedPod checks that a probe of a hostNetwork Pod needs the right on nodes also after the Pod has left the target.
func TestRightOnNodesOfAReleasedPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), append(deployment(), webPod("web-1", hostNetwork))...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	var pod corev1.Pod
	w.get(client.ObjectKeyFromObject(webPod("web-1")), &pod)
	pod.OwnerReferences = nil
	w.update(&pod)
	w.pass()
	if len(w.stops) > 0 {
		t.Errorf("keepers called: %v, want none while the requester has the right", w.stops)
	}
	w.deny["nodes"] = "lacks capture on nodes"
	w.pass()
	if diff := cmp.Diff([]string{"10.1.1.1 AccessRevoked"}, w.stops); diff != "" {
		t.Errorf("keepers called (-want +got):\n%s", diff)
	}
}

// TestClosedWhileRunning checks that the first pass stops the probes, and that their results stay.
func TestClosedWhileRunning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens   func(*world)
		keeperErr error
		reason    string // of the Pod
		wantStops []string
		wantJobs  int
		want      string // Complete
	}{
		"paused": {
			happens: func(w *world) { w.add(paused("true")) }, reason: sondev1.ReasonPaused,
			wantStops: []string{"10.1.1.1 Paused"}, wantJobs: 1, want: "False Paused",
		},
		"paused, and the keeper does not answer": {
			happens: func(w *world) { w.add(paused("true")) }, reason: sondev1.ReasonPaused, keeperErr: errors.New("no route"),
			wantStops: []string{"10.1.1.1 Paused", "10.1.1.1 Stopped"}, want: "False Paused",
		},
		"opted out": {
			happens: optOut, reason: sondev1.ReasonAccessRevoked,
			wantStops: []string{"10.1.1.1 AccessRevoked"}, wantJobs: 1, want: "False OptedOut",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			w.agents(w.attach)
			w.settle()
			w.keeperErr = tc.keeperErr
			tc.happens(w)
			w.pass()
			if diff := cmp.Diff(tc.wantStops, w.stops); diff != "" {
				t.Errorf("keepers called (-want +got):\n%s", diff)
			}
			if len(w.jobs()) != tc.wantJobs {
				t.Fatalf("jobs %v, want %d", w.jobNames(), tc.wantJobs)
			}
			if tc.wantJobs == 0 {
				return
			}
			w.agents(w.end(done(tc.reason)))
			w.settle()
			pc := w.capture()
			if pc.Status.Phase != sondev1.PhaseIncomplete || pc.Status.Pods[0].Reason != tc.reason || len(pc.Status.Pods[0].Files) != 1 {
				t.Errorf("status %+v", pc.Status)
			}
			if got := w.condition(sondev1.ConditionComplete); got != tc.want {
				t.Errorf("Complete is %q, want %q", got, tc.want)
			}
			if len(w.jobs()) != 1 {
				t.Error("the Job and its result are gone")
			}
		})
	}
}
