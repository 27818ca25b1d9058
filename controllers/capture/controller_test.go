package capture

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// TestLife follows one capture from its first pass until all its objects are deleted. At each stage a second pass over
// the unchanged cluster writes nothing.
func TestLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1", "web-2")...)

	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer"}, w.jobNames()); diff != "" {
		t.Fatalf("jobs (-want +got):\n%s", diff)
	}
	w.checkConfig("shop-web", "shop-web-c0ffee00-keeper")
	w.check("created", sondev1.PhasePending, "False Pending", "Unknown Pending")

	w.agents(w.attach)
	res := w.settle()
	w.check("attached", sondev1.PhaseCapturing, "True Capturing", "Unknown Capturing")
	if res.RequeueAfter <= 0 || res.RequeueAfter > 30*time.Second {
		t.Errorf("next pass after %v, want one at the end of the window", res.RequeueAfter)
	}

	w.clock.Step(31 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	res = w.settle()
	w.check("ended", sondev1.PhaseCompleted, "False Ended", "True Duration")
	status := w.capture().Status
	wantTotals := sondev1.Totals{Pods: 2, Completed: 2, Packets: 20, Bytes: 2000, Dropped: 4, Truncated: 2}
	if diff := cmp.Diff(wantTotals, status.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	end := metav1.NewTime(dawn.Add(31 * time.Second))
	until := metav1.NewTime(end.Add(time.Hour))
	want := sondev1.PodResult{
		UID: "uid-web-1", Name: "web-1", Node: "node-a", Job: "web-1-qwer", Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration,
		Packets: 10, Bytes: 1000, Dropped: sondev1.Dropped{Ring: 2}, Truncated: 1, Engine: "afpacket",
		Files: []sondev1.ResultFile{{Name: "web.pcapng", Bytes: 1500}}, AvailableUntil: &until,
	}
	if diff := cmp.Diff(want, status.Pods[0]); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if !status.StartTime.Time.Equal(dawn) || !status.CompletionTime.Equal(&end) || status.Target != "Deployment/web" || status.ObservedGeneration != 1 {
		t.Errorf("status %+v: start, completion, target or generation is wrong", status)
	}
	if res.RequeueAfter != time.Hour {
		t.Errorf("next pass after %v, want one at the end of the retention", res.RequeueAfter)
	}

	w.clock.Step(time.Hour)
	w.settle()
	if left := w.left(); len(left) > 0 {
		t.Errorf("left after the retention: %v", left)
	}
	if diff := cmp.Diff(status, w.capture().Status); diff != "" {
		t.Errorf("cleaning up changed the status:\n%s", diff)
	}
}

// TestQuiet checks that passes over an unchanged capture write nothing and review no right again.
func TestQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "1h" }), deployment("web-1", "web-2")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.writes, w.reviews = nil, 0
	for range 12 {
		w.clock.Step(5 * time.Second)
		res := w.pass()
		if res.RequeueAfter <= time.Minute {
			t.Errorf("a pass follows after %v", res.RequeueAfter)
		}
	}
	if len(w.writes) > 0 || w.reviews > 0 {
		t.Errorf("in a minute without changes: writes %v, reviews %d", w.writes, w.reviews)
	}
	if w.recent == 0 {
		t.Error("the right is not reviewed at all")
	}
	if longest := DefaultAccessReviewInterval - RecentFor(DefaultAccessReviewInterval); w.pass().RequeueAfter > longest {
		t.Errorf("the next review is more than %v away", longest)
	}
}

// check compares the phase and the conditions of a capture that is admitted and has Pods.
func (w *world) check(when string, phase sondev1.Phase, capturing, complete string) {
	w.t.Helper()
	got := []string{
		string(w.capture().Status.Phase), w.condition(sondev1.ConditionAdmitted), w.condition(sondev1.ConditionTargetFound),
		w.condition(sondev1.ConditionCapturing), w.condition(sondev1.ConditionComplete),
	}
	if ended := w.condition(sondev1.ConditionEnded); strings.HasPrefix(ended, "True") != phase.Final() {
		w.t.Errorf("%s: Ended is %s in phase %s", when, ended, phase)
	}
	if diff := cmp.Diff([]string{string(phase), "True Admitted", "True TargetFound", capturing, complete}, got); diff != "" {
		w.t.Errorf("%s: phase, Admitted, TargetFound, Capturing, Complete (-want +got):\n%s", when, diff)
	}
}

func (w *world) checkConfig(configMap, secret string) {
	w.t.Helper()
	var cm corev1.ConfigMap
	w.get(types.NamespacedName{Namespace: operatorNamespace, Name: configMap}, &cm)
	config, err := captureconfig.Parse([]byte(cm.Data[captureconfig.Key]))
	if err != nil || config.JobID != "qwer" || config.Requester != "alice" || config.UID != string(captureUID) {
		w.t.Errorf("config %+v (%v)", config, err)
	}
	var s corev1.Secret
	w.get(types.NamespacedName{Namespace: operatorNamespace, Name: secret}, &s)
	if len(s.Data) != 4 {
		w.t.Errorf("the Secret has %d keys, want 4", len(s.Data))
	}
	for _, job := range w.jobs() {
		volumes := job.Spec.Template.Spec.Volumes
		if volumes[0].ConfigMap.Name != configMap || volumes[1].Secret.SecretName != secret {
			w.t.Errorf("job %s mounts %s and %s", job.Name, volumes[0].ConfigMap.Name, volumes[1].Secret.SecretName)
		}
	}
}

// left lists the objects of all captures.
func (w *world) left() []string {
	w.t.Helper()
	var jobs batchv1.JobList
	var configMaps corev1.ConfigMapList
	var secrets corev1.SecretList
	for _, list := range []client.ObjectList{&jobs, &configMaps, &secrets} {
		if err := w.client.List(w.t.Context(), list, client.InNamespace(operatorNamespace)); err != nil {
			w.t.Fatal(err)
		}
	}
	var names []string
	for i := range jobs.Items {
		names = append(names, "Job "+jobs.Items[i].Name)
	}
	for i := range configMaps.Items {
		names = append(names, "ConfigMap "+configMaps.Items[i].Name)
	}
	for i := range secrets.Items {
		names = append(names, "Secret "+secrets.Items[i].Name)
	}
	return names
}
