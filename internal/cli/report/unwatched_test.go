package report

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// The plugin deletes a capture that is complete, and with it the status that names these times.
func TestUnwatchedTimesAreNoted(t *testing.T) {
	pc := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, "")
	at := metav1.NewTime(time.Date(2026, 3, 1, 13, 2, 3, 0, time.UTC))
	pc.Status.Unwatched = []v1alpha1.Timespan{{From: at, To: metav1.NewTime(at.Add(time.Minute))}}
	r := New(pc, []v1alpha1.PodResult{whole()}, saved(savedFile(whole(), nil)))
	const want = "Note: the operator did not watch Pods from 2026-03-01T13:02:03Z to 2026-03-01T13:03:03Z; a Pod that came and went then may be missing.\n"
	if !r.Complete || !r.AllSaved() || !strings.Contains(r.Text(), want) {
		t.Errorf("complete %t, everything saved %t, and it does not say when Pods were not watched:\n%s", r.Complete, r.AllSaved(), r.Text())
	}
}
