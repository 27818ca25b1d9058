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

func TestLimitsAreNoted(t *testing.T) {
	pc, first, second := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), whole(), whole()
	if r := New(pc, []v1alpha1.PodResult{first}, saved(savedFile(first, nil))); r.Limited() || strings.Contains(r.Text(), "reached") {
		t.Errorf("a limit is noted without a Pod that reached it:\n%s", r.Text())
	}
	first.Name, first.Reason = "web-1", v1alpha1.ReasonByteLimit
	second.Name, second.Reason = "web-2", v1alpha1.ReasonPacketLimit
	r := New(pc, []v1alpha1.PodResult{first, second}, saved(savedFile(first, nil), savedFile(second, nil)))
	for _, want := range []string{
		"Note: web-1 reached maxBytes, so later packets are in no file.\n", "Note: web-2 reached maxPackets, so later packets are in no file.\n",
	} {
		if !r.Limited() || !strings.Contains(r.Text(), want) {
			t.Errorf("limited %t, without %q:\n%s", r.Limited(), want, r.Text())
		}
	}
}

func TestMessagesAreNotedOnce(t *testing.T) {
	pc, first, second := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), whole(), whole()
	first.Name, first.Message = "web-1", "unnoticed interfaces"
	second.Name, second.Message = "web-2", "unnoticed interfaces"
	text := New(pc, []v1alpha1.PodResult{first, second}, saved(savedFile(first, nil), savedFile(second, nil))).Text()
	if strings.Count(text, "unnoticed") != 1 || !strings.Contains(text, "Note: web-1 and 1 more: unnoticed interfaces.\n") {
		t.Errorf("want one note of both Pods:\n%s", text)
	}
}

func TestMissingContainersAreNoted(t *testing.T) {
	pc, first, second := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), whole(), whole()
	first.Name, first.ContainersNotFound = "web-1", []string{"log", "proxy"}
	second.Name, second.ContainersNotFound = "web-2", []string{"proxy"}
	text := New(pc, []v1alpha1.PodResult{first, second}, saved(savedFile(first, nil), savedFile(second, nil))).Text()
	for _, want := range []string{
		"Note: container \"log\" does not exist in web-1, so the result has no events of it.\n",
		"Note: container \"proxy\" does not exist in web-1 and 1 more, so the result has no events of it.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
}
