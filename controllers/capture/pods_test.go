package capture

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// TestScale checks that Pods that join get the rest of the window, and that Pods that leave keep their result.
func TestScale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(10 * time.Second)
	w.add(webPod("web-2", w.now), webPod("web-3", w.now))
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer 30s", "web-2-qwer 20s", "web-3-qwer 20s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	if s := w.capture().Status; s.Phase != sondev1.PhaseCapturing || w.condition(sondev1.ConditionCapturing) != "False Pending" {
		t.Errorf("phase %s, Capturing %s: a Pod that joins does not undo the phase", s.Phase, w.condition(sondev1.ConditionCapturing))
	}
	w.agents(func(p *corev1.Pod) {
		if p.Status.Phase == corev1.PodPending {
			w.attach(p)
		}
	})
	w.settle()
	w.clock.Step(10 * time.Second)
	w.remove(webPod("web-2"))
	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-2-qwer-x" {
			w.end(done(sondev1.ReasonTargetGone))(p)
		}
	})
	w.settle()
	w.clock.Step(11 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.add(webPod("web-4", w.now)) // too late
	w.settle()
	want := []string{"web-1 Completed Duration", "web-2 Completed TargetGone", "web-3 Completed Duration"}
	if diff := cmp.Diff(want, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	w.check("scaled", sondev1.PhaseCompleted, "False Ended", "True Ended")
}

func TestFollowPodsFalse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { no := false; pc.Spec.FollowPods = &no }), deployment("web-1", "web-2")...)
	// One of the first Pods gets its Job a moment later than the other.
	w.createErr = func(o client.Object) error {
		if o.GetName() == "web-2-qwer" {
			return apierrors.NewForbidden(schema.GroupResource{}, "web-2-qwer", errors.New("exceeded quota"))
		}
		return nil
	}
	w.settle()
	w.createErr = nil
	w.clock.Step(time.Second)
	w.add(webPod("web-3", w.now))
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	w.agents(w.attach)
	w.agents(w.end(done(sondev1.ReasonPacketLimit)))
	w.settle()
	w.check("all ended before the window is over", sondev1.PhaseCompleted, "False Ended", "True PacketLimit")
}

// TestPodOfTheStartWithoutANode: a Pod that exists at the start, and gets its node later, belongs to a capture that follows no Pods. One that
// was created later does not.
func TestPodOfTheStartWithoutANode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		late time.Duration // from the start until the Pod has a node
		want []string
	}{
		"in time":  {5 * time.Second, []string{"web-1 Completed Duration", "web-2 Completed Duration"}},
		"too late": {time.Minute, []string{"web-2 Failed NotStarted", "web-1 Capturing Capturing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodeless := func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.FollowPods, pc.Spec.Duration = new(false), "30s" }), deployment("web-1")...)
			late := webPod("web-2", nodeless)
			w.add(late)
			w.settle()
			w.agents(w.attach)
			w.settle()
			w.clock.Step(tc.late)
			w.add(webPod("web-3", w.now))
			late.Spec.NodeName = "node-a"
			w.update(late)
			w.settle()
			if tc.late < 30*time.Second {
				w.agents(w.attach)
				w.settle()
				w.agents(w.end(done(sondev1.ReasonDuration)))
				w.settle()
			}
			if diff := cmp.Diff(tc.want, entries(w.capture().Status)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatefulSetPodComesBack checks that each new Pod of the same name gets a Job of its own.
func TestStatefulSetPodComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment()...)
	for i := range 4 {
		uid := types.UID(fmt.Sprintf("%d0000000-1111-4222-8333-444455556666", i))
		p := webPod("web-0", func(p *corev1.Pod) { p.UID = uid })
		w.add(p)
		w.settle()
		w.agents(w.attach)
		w.settle()
		w.remove(p)
	}
	want := []string{"web-0-20000000-qwer", "web-0-30000000-qwer", "web-0-qwer", "web-0-qwer-c0ffee00"}
	if diff := cmp.Diff(want, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if got := len(w.capture().Status.Pods); got != 4 {
		t.Errorf("%d entries, want one for each Pod: %v", got, entries(w.capture().Status))
	}
}

// TestNamesTaken checks that two captures with the same jobId and Pods do not share Jobs.
func TestNamesTaken(t *testing.T) {
	t.Parallel()
	other := newCapture(func(pc *sondev1.PacketCapture) { pc.Name, pc.UID = "other", "0badcafe-1111-4222-8333-444455556666" })
	w := newWorld(t, newCapture(), append(deployment("web-1"), other)...)
	w.settle()
	w.checkConfig("shop-web", "shop-web-c0ffee00-keeper")
	w.key = client.ObjectKeyFromObject(other)
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-1-qwer-0badcafe"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	for _, name := range []string{"shop-web-0badcafe", "shop-web-0badcafe-keeper"} {
		if left := w.left(); !slices.Contains(left, "ConfigMap "+name) && !slices.Contains(left, "Secret "+name) {
			t.Errorf("%s is missing: %v", name, left)
		}
	}
	w.agents(w.attach)
	w.settle()
	if got := entries(w.capture().Status); !slices.Equal(got, []string{"web-1 Capturing Capturing"}) {
		t.Errorf("entries of the other capture: %v", got)
	}
	if s := mustText(t, w.capture()); strings.Contains(s, string(captureUID)) || strings.Contains(s, `"pc"`) {
		t.Errorf("the other capture's status names the owner of the Job: %s", s)
	}
}

func TestNoNameFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	for _, name := range []string{"web-1-qwer", "web-1-qwer-c0ffee00", "web-1-206c64fb-qwer", "web-1-206c64fb-qwer-c0ffee00"} {
		w.add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: operatorNamespace, Labels: map[string]string{"tenant": "secret"}}})
	}
	p := webPod("web-1")
	p.UID = "206c64fb-1111-4222-8333-444455556666"
	w.remove(webPod("web-1"))
	w.add(p)
	w.settle()
	if diff := cmp.Diff([]string{"web-1 Failed NameConflict"}, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if s := mustText(t, w.capture()); strings.Contains(s, "secret") {
		t.Errorf("the status names the owner of the Job: %s", s)
	}
}

// TestStaleCache checks that an object that the cache does not have yet is not created twice.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.stale = true
	w.settle()
	w.stale = false
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if got := len(w.left()); got != 3 {
		t.Errorf("objects %v, want one ConfigMap, one Secret, one Job", w.left())
	}
}

// TestLostStatusWrite checks the pass after Jobs were created and the status could not be written.
func TestLostStatusWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.pass()
	pc := w.capture()
	pc.Status = sondev1.CaptureStatus{JobID: "qwer"}
	if err := w.client.Status().Update(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(7 * time.Second)
	w.add(webPod("web-2"))
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer 30s", "web-2-qwer 30s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	if start := w.capture().Status.StartTime; start == nil || !start.Time.Equal(dawn) {
		t.Errorf("start %v, want the creation of the first Job", start)
	}
}

// TestConflict checks that a pass over a stale capture is delayed, without an error.
func TestConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.patchErr = apierrors.NewConflict(schema.GroupResource{}, "pc", errors.New("changed"))
	if res := w.pass(); res.RequeueAfter != pass.ConflictDelay {
		t.Errorf("next pass after %v, want %v", res.RequeueAfter, pass.ConflictDelay)
	}
	if len(w.jobs()) > 0 || w.sent() != "" {
		t.Error("a Job was created before the jobId was stored, or an Event is wrong")
	}
}

func TestJobID(t *testing.T) {
	t.Parallel()
	auto := func(pc *sondev1.PacketCapture) { pc.Spec.JobID = "" }
	w := newWorld(t, newCapture(auto), deployment("web-1")...)
	w.settle()
	id := w.capture().Status.JobID
	if diff := cmp.Diff([]string{"web-1-" + id}, w.jobNames()); diff != "" || len(id) != 4 {
		t.Errorf("jobId %q, jobs (-want +got):\n%s", id, diff)
	}

	other := newCapture(func(pc *sondev1.PacketCapture) {
		pc.Name, pc.UID, pc.Spec.JobID = "other", "other", id
	})
	w = newWorld(t, newCapture(auto), append(deployment("web-1"), other)...)
	w.settle()
	if got := w.capture().Status.JobID; got == id || len(got) != 4 {
		t.Errorf("jobId %q, want another than %q, which a live capture of the target has", got, id)
	}
}

// TestManyPods checks that the list of Pods is bounded, and that the totals count all. Most of them have ended and are gone
// when the test begins: the fake client takes seconds for hundreds of Jobs.
func TestManyPods(t *testing.T) {
	t.Parallel()
	const over, pods = sondev1.MaxPodEntries - 2, sondev1.MaxPodEntries + 2
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) {
		begun := metav1.NewTime(dawn)
		pc.Status.JobID, pc.Status.StartTime, pc.Status.Phase = "qwer", &begun, sondev1.PhaseCapturing
		for i := range over {
			name := fmt.Sprintf("over-%03d", i)
			pc.Status.Pods = append(pc.Status.Pods, sondev1.PodResult{
				UID: "uid-" + name, Name: name, Node: "node-a", Job: name + "-qwer", Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonTargetGone,
				Packets: 10, Bytes: 1000, Dropped: sondev1.Dropped{Ring: 2}, Truncated: 1,
			})
		}
	}), deployment("web-0", "web-1", "web-2", "web-3")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	status := w.capture().Status
	if len(w.jobs()) != 4 || len(status.Pods) != sondev1.MaxPodEntries || status.PodsOmitted != 2 || status.Totals.Pods != pods {
		t.Fatalf("%d jobs, %d entries, %d omitted, %d in all", len(w.jobs()), len(status.Pods), status.PodsOmitted, status.Totals.Pods)
	}
	w.clock.Step(31 * time.Second)
	w.agents(func(p *corev1.Pod) {
		a := done(sondev1.ReasonDuration)
		if p.Name == "web-3-qwer-x" {
			a.Complete, a.Reason = false, sondev1.ReasonDiskFull
		}
		w.end(a)(p)
	})
	w.settle()
	status = w.capture().Status
	want := sondev1.Totals{Pods: pods, Completed: pods - 1, Incomplete: 1, Packets: 10 * pods, Bytes: 1000 * pods, Dropped: 2 * pods, Truncated: pods}
	if diff := cmp.Diff(want, status.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if got := entries(status)[:2]; !slices.Equal(got, []string{"web-3 Incomplete DiskFull", "over-000 Completed TargetGone"}) {
		t.Errorf("the first entries are %v, want failed and incomplete ones first, then by name", got)
	}
	w.check("many", sondev1.PhaseIncomplete, "False Ended", "False DiskFull")

	w.clock.Step(time.Hour - time.Second) // files of unlisted Pods are kept as long
	w.settle()
	if len(w.jobs()) != 4 {
		t.Error("Jobs are gone before the retention ends")
	}
	w.clock.Step(2 * time.Second)
	w.settle()
	if len(w.left()) != 0 {
		t.Errorf("%d objects are left", len(w.left()))
	}
}

func TestHostileLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) {
		pc.Labels = map[string]string{
			sondev1.LabelUID: "another", sondev1.LabelTargetPodUID: "another", sondev1.LabelKind: "Trace",
			sondev1.LabelAppName: "sonde", "app.kubernetes.io/component": "manager", "control-plane": "controller-manager",
		}
	}), deployment("web-1")...)
	w.settle()
	for _, labels := range []map[string]string{w.jobs()[0].Labels, w.jobs()[0].Spec.Template.Labels} {
		if labels[sondev1.LabelUID] != string(captureUID) || labels[sondev1.LabelTargetPodUID] != "uid-web-1" || labels[sondev1.LabelKind] != "PacketCapture" {
			t.Errorf("labels %v: the capture could claim another's objects", labels)
		}
		if labels["app.kubernetes.io/component"] != "" || labels["control-plane"] != "" {
			t.Errorf("labels %v: the manager's Services would select the agent", labels)
		}
	}
}

func TestFilterPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Filter, pc.Spec.SnapLength = "vlan", 96 }), deployment("web-1")...)
	w.filter[pcapfilter.LinkRaw] = &pcapfilter.SyntaxError{Message: "no VLAN"}
	w.settle()
	var cm corev1.ConfigMap
	w.get(types.NamespacedName{Namespace: operatorNamespace, Name: "shop-web"}, &cm)
	config, err := captureconfig.Parse([]byte(cm.Data[captureconfig.Key]))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int32]string{1: bpfprog.Program{{Code: 6, K: 96}}.String()}
	if diff := cmp.Diff(want, config.Programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	if sent := w.sent(); !strings.Contains(sent, "Normal FilterNotCompilable") {
		t.Errorf("events: %s", sent)
	}
}

// TestHostNetworkRightRevoked checks that only the probe of the hostNetwork Pod is stopped.
func TestHostNetworkRightRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), append(deployment("web-1"), webPod("web-2", hostNetwork))...)
	w.settle()
	w.agents(w.attach)
	w.agents(func(p *corev1.Pod) { p.Status.PodIP = p.Name })
	w.settle()
	w.deny["nodes"] = "no more"
	w.pass()
	if diff := cmp.Diff([]string{"web-2-qwer-x AccessRevoked"}, w.stops); diff != "" {
		t.Errorf("keepers called (-want +got):\n%s", diff)
	}
}

// TestFinalIsKept checks that a final status only loses files that are gone.
func TestFinalIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1", "web-2")...)
	w.settle()
	w.agents(w.attach)
	w.clock.Step(31 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	before := w.capture().Status

	w.deny["shop"], w.stampErr, w.accessErr = "no more", errors.New("no"), errors.New("no")
	w.add(webPod("web-3"))
	w.agents(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Terminated.Message = `{"v":1,"state":"done"}`
	})
	w.settle()
	if diff := cmp.Diff(before, w.capture().Status); diff != "" {
		t.Errorf("a final status changed:\n%s", diff)
	}

	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-1-qwer-x" {
			p.Status.Phase = corev1.PodFailed
		}
	})
	w.settle()
	after := w.capture().Status
	if e := after.Pods[0]; e.Phase != sondev1.PhaseCompleted || e.AvailableUntil != nil || len(e.Files) != 0 || e.Packets != 10 {
		t.Errorf("entry %+v: want its files removed, and no other change", e)
	}
	if diff := cmp.Diff(before.Pods[1], after.Pods[1]); diff != "" {
		t.Errorf("the other entry changed:\n%s", diff)
	}
}

// TestKilledProbeIsRecounted checks that the manager asks the keeper until it answers: the file holds more than the account.
func TestKilledProbeIsRecounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	sent := done("")
	sent.State, sent.Complete = account.StateCapturing, false
	w.agents(w.end(sent))
	w.agents(func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].State.Terminated.ExitCode = 137 })
	w.keeperErr = errors.New("no answer yet")
	if res := w.pass(); res.RequeueAfter > 2*time.Second || w.capture().Status.Pods[0].Phase != sondev1.PhaseCapturing {
		t.Errorf("next pass after %s, entry %+v; want Capturing until the keeper answers", res.RequeueAfter, w.capture().Status.Pods[0])
	}
	w.keeperErr, w.recounted = nil, sent
	w.recounted.Packets, w.recounted.Seen = 25, 27
	w.settle()
	if e := w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonKilled || e.Packets != 25 || e.Dropped.Ring != 2 {
		t.Errorf("entry %+v, want Incomplete, Killed, with the 25 packets of the file and the 2 that were dropped", e)
	}
	asked := w.recounts
	if w.settle(); w.recounts != asked {
		t.Errorf("the keeper is asked again after the verdict")
	}
}

// TestKilledProbeOfAnOlderVersion checks that the probe's last account counts if its keeper cannot recount.
func TestKilledProbeOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	sent := done("")
	sent.State, sent.Complete = account.StateCapturing, false
	w.agents(w.end(sent))
	w.keeperErr = fmt.Errorf("recount: %w", &keeperapi.StatusError{Code: http.StatusNotFound})
	w.settle()
	if e := w.capture().Status.Pods[0]; e.Phase != sondev1.PhaseIncomplete || e.Packets != 10 {
		t.Errorf("entry %+v, want Incomplete with the 10 packets of the last account", e)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1", "web-2")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(31 * time.Second)
	w.agents(func(p *corev1.Pod) {
		a := done(sondev1.ReasonDuration)
		if p.Name == "web-1-qwer-x" {
			a.Complete, a.Reason, a.Message = false, sondev1.ReasonDiskFull, "%s no space %d"
		}
		w.end(a)(p)
	})
	w.settle()
	want := []string{
		"Normal Pending Pending: not all probes are attached yet",
		"Normal Capturing Capturing: until 2026-01-02T03:04:35Z",
		"Warning DiskFull Pod web-1: Incomplete: %s no space %d",
		"Warning Incomplete DiskFull: 1 of 2 Pods are not complete; the first is web-1: %s no space %d; fetch the files by: kubectl sonde download pc -n shop",
	}
	if diff := cmp.Diff(want, strings.Split(w.sent(), "\n")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// durations of the probes, by Job.
func (w *world) durations() []string {
	w.t.Helper()
	var all []string
	for _, j := range w.jobs() {
		args := j.Spec.Template.Spec.Containers[0].Args
		all = append(all, j.Name+" "+args[slices.Index(args, "--duration")+1])
	}
	slices.Sort(all)
	return all
}

func mustText(t *testing.T, pc *sondev1.PacketCapture) string {
	t.Helper()
	var b strings.Builder
	for _, c := range pc.Status.Conditions {
		b.WriteString(c.Message + "\n")
	}
	for _, e := range pc.Status.Pods {
		b.WriteString(e.Message + "\n")
	}
	return b.String()
}
