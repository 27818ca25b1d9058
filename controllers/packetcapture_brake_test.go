package controllers

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/brake"
)

func paused(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: brake.Name}, Data: map[string]string{brake.Key: value},
	}
}

// optOut closes the target's namespace.
func optOut(w *world) {
	w.update(namespace("shop", map[string]string{sondev1.LabelOptOut: "true"}))
}

func tenant(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name}}
}

// besideAnother is where OLM put a second operator into the namespace.
func besideAnother(w *world) { w.add(tenant("another-operator")) }

// TestClosedBefore: what is paused or closed gets no Job.
func TestClosedBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*world)
		want    string // Admitted
	}{
		"open":                 {happens: func(*world) {}, want: "True Admitted"},
		"a switch that is off": {happens: func(w *world) { w.add(paused("false")) }, want: "True Admitted"},
		"paused":               {happens: func(w *world) { w.add(paused("true")) }, want: "False Paused"},
		"opted out":            {happens: optOut, want: "False OptedOut"},
		"beside another":       {happens: besideAnother, want: "False NamespaceShared"},
		"by itself":            {happens: func(w *world) { w.add(tenant(agentjob.ManagerDeployment)) }, want: "True Admitted"},
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

// TestClosedWhileRunning: probes are told to end in the first pass, and their results stay.
func TestClosedWhileRunning(t *testing.T) {
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
				t.Error("the Job, and the result with it, is gone")
			}
		})
	}
}
