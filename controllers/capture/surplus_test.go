package capture

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// second creates a second Job of a Pod, as a manager does that has lost its lead and found the first name taken.
func (w *world) second(age time.Duration) (first, second string) {
	w.t.Helper()
	job := w.jobs()[0]
	late := job.DeepCopy()
	late.ObjectMeta = metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-12345678", UID: "late", Labels: job.Labels, Annotations: job.Annotations,
		CreationTimestamp: metav1.NewTime(job.CreationTimestamp.Add(-age)),
	}
	w.add(late)
	return job.Name, late.Name
}

// TestSecondJob: a Pod keeps the Job that the status names, or else the older one. The account is that Job's.
func TestSecondJob(t *testing.T) {
	for name, tc := range map[string]struct {
		age    time.Duration // how much older the second Job is
		unsaid bool          // no status names a Job yet
		want   int           // the Job that stays
	}{
		"the status names the first":                   {age: -time.Minute, want: 0},
		"the status names the first, which is younger": {age: time.Minute, want: 0},
		"no status, and the first is older":            {age: -time.Minute, unsaid: true, want: 0},
		"no status, and the second is older":           {age: time.Minute, unsaid: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			first, second := w.second(tc.age)
			kept := []string{first, second}[tc.want]
			if tc.unsaid {
				pc := w.capture()
				pc.Status.Pods = nil
				w.update(pc)
			}
			w.agents(func(p *corev1.Pod) {
				if strings.HasPrefix(p.Name, kept+"-x") {
					w.attach(p)
				}
			})
			w.settle()
			if got := w.jobNames(); !slices.Equal(got, []string{kept}) {
				t.Errorf("the Jobs are %v, want %s", got, kept)
			}
			if e := w.capture().Status.Pods[0]; e.Job != kept || e.Phase != sondev1.PhaseCapturing {
				t.Errorf("the entry has Job %s and is %s, want %s and Capturing", e.Job, e.Phase, kept)
			}
		})
	}
}

func TestIsAgentOf(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tc := range []struct {
		pod, job string
		want     bool
	}{
		{"web-1-qwer-x7x2z", "web-1-qwer", true},
		{"web-1-qwer-12345678-x7x2z", "web-1-qwer", false},
		{"web-1-qwer-12345678-x7x2z", "web-1-qwer-12345678", true},
		{"web-1-qwer-x7x2z", "web-1-qwer-12345678", false},
		{long[:58] + "x7x2z", long, true},
	} {
		if got := isAgentOf(tc.pod, tc.job); got != tc.want {
			t.Errorf("isAgentOf(%s, %s) = %t", tc.pod, tc.job, got)
		}
	}
}
