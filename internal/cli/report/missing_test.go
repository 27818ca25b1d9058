package report

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

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

func TestMissingContainersAreNoted(t *testing.T) {
	pc, first, second := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), whole(), whole()
	first.Name, first.ContainersNotFound = "web-1", []string{"log", "proxy"}
	second.Name, second.ContainersNotFound = "web-2", []string{"proxy"}
	text := New(pc, []v1alpha1.PodResult{first, second}, saved(savedFile(first, nil), savedFile(second, nil))).Text()
	for _, want := range []string{
		"Note: web-1 has no container \"log\", so the result has no events of it.\n",
		"Note: web-1 and 1 more have no container \"proxy\", so the result has no events of it.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
}
