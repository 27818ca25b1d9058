package collector

import (
	"fmt"
	"math"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// forgeEnded writes a Job of another generation that has failed, as a user may who can write Jobs. change makes it special.
func (w *world) forgeEnded(c *sondev1.Collector, name string, number int64, change func(*batchv1.Job)) {
	w.t.Helper()
	job := BuildJob(c, BuildAnchor(c), number, "eve")
	job.Name, job.UID = name, "forged"
	job.Annotations[sondev1.AnnotationGeneration] = "77"
	if change != nil {
		change(job)
	}
	if err := w.Create(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	if err := w.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

// own returns the names of the Jobs that the operator has created.
func (w *world) own() (names []string) {
	w.t.Helper()
	for _, job := range w.jobs() {
		if job.Spec.Template.Spec.Containers[0].Image == w.Image {
			names = append(names, job.Name)
		}
	}
	return names
}

// A forged Job that has ended starts no second run beside one that runs, and no run without end, whatever number it has.
func TestForgedNumbers(t *testing.T) {
	for name, tc := range map[string]struct {
		name   func(c *sondev1.Collector) string
		number int64
	}{
		"the largest number":            {func(c *sondev1.Collector) string { return runName(c, math.MaxInt64) }, math.MaxInt64},
		"the largest number, any name":  {func(*sondev1.Collector) string { return "eve" }, math.MaxInt64},
		"the largest number but one":    {func(c *sondev1.Collector) string { return runName(c, math.MaxInt64-1) }, math.MaxInt64 - 1},
		"no number":                     {func(c *sondev1.Collector) string { return runName(c, 0) }, 0},
		"a negative number":             {func(c *sondev1.Collector) string { return runName(c, math.MinInt64) }, math.MinInt64},
		"the next run":                  {func(c *sondev1.Collector) string { return runName(c, 2) }, 2},
		"the next run, by another name": {func(*sondev1.Collector) string { return "eve" }, 2},
		"the run after it":              {func(c *sondev1.Collector) string { return runName(c, 3) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector()
			w := newWorld(t, c)
			w.pass()
			w.forgeEnded(c, tc.name(c), tc.number, nil)
			for range 20 {
				w.pass()
				w.clock.SetTime(w.clock.Now().Add(maxDelay))
			}
			if got := w.own(); !slices.Equal(got, []string{runName(c, 1)}) {
				t.Fatalf("%d Jobs, want only the one that has not ended: %v", len(got), got)
			}
			first := w.jobs()[slices.IndexFunc(w.jobs(), func(j batchv1.Job) bool { return j.Name == runName(c, 1) })]
			w.end(&first, release.Report{Outcome: release.Ready, Revision: 1})
			for range 20 {
				w.pass()
				w.clock.SetTime(w.clock.Now().Add(maxDelay))
			}
			if got := w.own(); len(got) > 2 {
				t.Errorf("Jobs %v", got)
			}
			if runs := w.pass().Status.Runs; runs < 1 || runs > 3 {
				t.Errorf("status.runs is %d", runs)
			}
		})
	}
}

// A Job that is no run, but has the Collector's label, may be a releaser. Nothing starts before it has ended.
func TestUnknownJobOfTheCollector(t *testing.T) {
	c := newCollector()
	w := newWorld(t, c)
	w.forge(c, runName(c, 9), 9)
	got := w.pass()
	want(t, got, sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
	if own := w.own(); len(own) != 0 {
		t.Errorf("Jobs %v beside it", own)
	}
	if m, want := condition(got, sondev1.ConditionReconciling).Message, "Job "+runName(c, 9)+" has this Collector's label, but is none of its runs and has not ended: wait for its end, or delete it"; m != want {
		t.Errorf("message %q, want %q", m, want)
	}
	unknown := w.jobs()[0]
	unknown.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if err := w.Status().Update(t.Context(), &unknown); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if own := w.own(); !slices.Equal(own, []string{runName(c, 1)}) {
		t.Errorf("Jobs %v after its end, want run 1", own)
	}
}

// A status that could not be written lacks the last run. It gets the number of that run before another one starts.
func TestStatusWithoutTheLastRun(t *testing.T) {
	c := newCollector()
	w := newWorld(t, c)
	for i := range int64(3) {
		got := w.pass()
		name := runName(c, i+1)
		if got.Status.Job != name || got.Status.Runs != i+1 {
			t.Fatalf("Job %s and %d runs, want %s and %d", got.Status.Job, got.Status.Runs, name, i+1)
		}
		got.Status.Runs-- // as if the patch were lost
		if err := w.Status().Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		jobs := w.jobs()
		last := jobs[slices.IndexFunc(jobs, func(j batchv1.Job) bool { return j.Name == name })]
		w.end(&last, release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady})
		w.pass()
		w.clock.SetTime(w.clock.Now().Add(maxDelay))
		if got := w.pass(); got.Status.Runs != i+1 || len(w.own()) != 1 {
			t.Fatalf("%d runs and Jobs %v, want %d runs and one Job", got.Status.Runs, w.own(), i+1)
		}
	}
}

// Only the Secret that the operator has created with a Job goes with the Job's report, and earlier Jobs stay until they have ended.
func TestForgedRunDeletesNoSecret(t *testing.T) {
	for name, forge := range map[string]func(w *world, c *sondev1.Collector, victim *corev1.Secret){
		"with the victim's name": func(w *world, c *sondev1.Collector, victim *corev1.Secret) {
			w.forgeEnded(c, victim.Name, 1, nil)
		},
		"with the victim's name and UID": func(w *world, c *sondev1.Collector, victim *corev1.Secret) {
			w.forgeEnded(c, victim.Name, 1, func(j *batchv1.Job) { j.Annotations[annotationSecret] = string(victim.UID) })
		},
		"with a run's name": func(w *world, c *sondev1.Collector, _ *corev1.Secret) { w.forgeEnded(c, runName(c, 1), 1, nil) },
		"with a run's name, and another's UID": func(w *world, c *sondev1.Collector, _ *corev1.Secret) {
			w.forgeEnded(c, runName(c, 1), 1, func(j *batchv1.Job) { j.Annotations[annotationSecret] = "another" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector()
			c.Spec.Suspend = true
			victims := []*corev1.Secret{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "db-password", UID: "victim"}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: runName(c, 1), UID: "victim-2"}},
			}
			w := newWorld(t, c, victims[0], victims[1])
			forge(w, c, victims[0])
			for range 3 {
				w.pass()
			}
			for _, victim := range victims {
				if err := w.Get(t.Context(), client.ObjectKeyFromObject(victim), &corev1.Secret{}); err != nil {
					t.Error(fmt.Errorf("a Secret that the operator has not created: %w", err))
				}
			}
		})
	}
}
