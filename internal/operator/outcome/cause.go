package outcome

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// leaveWait is how long the API server may take to say that a Pod is gone whose processes have ended. The kubelet reports the end of
// a Job's Pod some seconds later, and its status of all Pods every 10 s at the latest.
const leaveWait = 30 * time.Second

// Event is something that ends the capture of a Pod.
type Event struct {
	Happened bool
	// At is when; zero if that is not known.
	At time.Time
}

// explains reports whether a probe that ended at this time may have ended by the event. The clocks may differ by skew.
func (e Event) explains(ended time.Time) bool {
	return e.Happened && (e.At.IsZero() || ended.IsZero() || !ended.Before(e.At.Add(-skew)))
}

// Cause is what a probe says about why it ended.
type Cause int

// Causes.
const (
	// CauseOwn needs no proof: the probe's duration, a limit or an error, or it has not ended.
	CauseOwn Cause = iota
	// CauseStop: the keeper asked it to end because of spec.stop.
	CauseStop
	// CausePod: it found no process of the Pod, or the keeper asked it to end because the Pod is gone.
	CausePod
)

// ClaimedCause returns why a probe ended by its own account, as far as that makes the result complete. The API server must confirm
// it: a keeper that was taken over can end its probe, and a Pod whose containers crash may have no process and live on.
func ClaimedCause(o Observed) Cause {
	cause, _ := o.claim()
	return cause
}

func (o Observed) claim() (Cause, account.Account) {
	probe := container(o.Agent, captureconfig.ContainerProbe)
	if o.Before.Phase.Final() || probe == nil || probe.State.Terminated == nil {
		return CauseOwn, account.Account{}
	}
	acc, err := account.Parse([]byte(probe.State.Terminated.Message))
	switch {
	case err != nil || !acc.Complete:
		return CauseOwn, acc
	case acc.Reason == account.ReasonStopped:
		return CauseStop, acc
	case acc.Reason == account.ReasonTargetGone:
		return CausePod, acc
	default:
		return CauseOwn, acc
	}
}

// doubt returns why the claimed cause of a probe's end is not believed; empty if it is. Probes of older versions do not say whether
// they were asked: they count as if they had found the Pod gone themselves.
func (o Observed) doubt() string {
	switch cause, acc := o.claim(); {
	case cause == CauseStop && !o.Stop.explains(acc.Ended),
		cause == CausePod && acc.Asked && !o.Gone.explains(acc.Ended):
		return sondev1.ReasonStopNotRequested
	case cause == CausePod && !acc.Asked && !o.Leaving.explains(acc.Ended):
		return sondev1.ReasonTargetNotGone
	default:
		return ""
	}
}

// awaitLeaving leaves the entry as it is while the API server may still learn that the Pod is gone.
func (v *Verdict) awaitLeaving(o Observed, t *corev1.ContainerStateTerminated, now time.Time) bool {
	return !o.Leaving.Happened && v.await(t, leaveWait, now)
}
