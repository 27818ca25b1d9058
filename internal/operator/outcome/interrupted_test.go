package outcome_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestInterrupted checks that only the first final verdict reports an interrupted probe.
func TestInterrupted(t *testing.T) {
	last := account.Account{State: account.StateCapturing, Started: dawn}
	over := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses = corev1.PodFailed, reason, nil
		}
	}
	for name, tc := range map[string]struct {
		observed outcome.Observed
		want     bool
	}{
		"capturing":                         {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true))}, false},
		"killed":                            {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(last, 137))}, true},
		"killed, and counted":               {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(last, 137)), Recounted: &last}, true},
		"killed, and not counted yet":       {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(last, 137)), RecountPending: true}, false},
		"killed before its first account":   {outcome.Observed{Before: withJob(entry(sondev1.PhasePending, "", "")), Job: job(), Agent: agent(raw("", 137))}, true},
		"ended":                             {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 0))}, false},
		"ended, and killed":                 {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 137))}, false},
		"final before":                      {outcome.Observed{Before: completed(), Job: job(), Agent: agent(ended(last, 137))}, false},
		"evicted":                           {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(over("Evicted"))}, true},
		"its Pod is gone":                   {outcome.Observed{Before: capturing(), Job: job(), Node: outcome.NodeReady}, true},
		"its Pod is gone with the node":     {outcome.Observed{Before: capturing(), Job: job(), Node: outcome.NodeLost}, false},
		"its node is lost":                  {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true)), Node: outcome.NodeLost}, false},
		"never observed attached, and gone": {outcome.Observed{Before: withJob(entry(sondev1.PhasePending, "", "")), Job: failed(batchv1.JobReasonDeadlineExceeded)}, false},
		"its keeper is lost, it still runs": {outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true), keeperKilled)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := outcome.Judge(tc.observed, dawn)
			if v.Interrupted != tc.want {
				t.Errorf("interrupted %v, want %v: %s %s", v.Interrupted, tc.want, v.Entry.Phase, v.Entry.Reason)
			}
		})
	}
}

func keeperKilled(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
}
