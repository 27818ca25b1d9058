package capture

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// A probe reports within proofWait that it opened a gate; meanwhile its keeper is asked again each proofAgain.
const (
	proofWait  = 10 * time.Second
	proofAgain = 2 * time.Second
)

// confirmed returns the result of a gate that ended with a claim. A user who may edit the Pod can replace the gate's image,
// and with it the program that makes the claim. So that it opened, and the Pod was traced from its first instruction, is
// believed only if the probe says that it opened the gate of just this container. The word of a probe that has ended is the last
// one: what a running probe has said comes from its keeper, which may have been taken over.
func confirmed(claim *sondev1.GateResult, ended *corev1.ContainerStateTerminated, acc *account.Account, before *sondev1.GateResult, now time.Time,
) *sondev1.GateResult {
	over := acc != nil && acc.State == account.StateDone
	if claim.Outcome != sondev1.GateOpened || !over && before != nil && before.Outcome == sondev1.GateOpened {
		return claim
	}
	_, id, _ := strings.Cut(ended.ContainerID, "://")
	switch {
	case acc == nil:
		return before
	case id != "" && acc.Gate == id:
		return claim
	case !over && now.Before(ended.FinishedAt.Add(proofWait)):
		return before
	}
	return &sondev1.GateResult{Outcome: sondev1.GateUntraced, WaitedMilliseconds: claim.WaitedMilliseconds}
}

// claimsOpened returns the state of a gate that says that it was opened, or nil.
func claimsOpened(capture sondev1.Capture, pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if !gatedBy(capture, pod) {
		return nil
	}
	for i := range pod.Status.InitContainerStatuses { // the cache keeps no other than the gate
		ended := pod.Status.InitContainerStatuses[i].State.Terminated
		if claim := gateResult(ended); claim != nil && claim.Outcome == sondev1.GateOpened {
			return ended
		}
	}
	return nil
}

// gateReport is how long the kubelet may take to report how a gate ended. It is less than the shortest retainFor.
const gateReport = 5 * time.Second

// awaitsGateReport reports whether the probe opened the Pod's gate and has just ended, but the kubelet has not reported how the gate ended.
// The first final entry must have the gate's result, because clients read that entry and then delete the Trace.
func (p *podState) awaitsGateReport(capture sondev1.Capture, pod *corev1.Pod, v *outcome.Verdict, now time.Time) bool {
	if p.before.Phase.Final() || !v.Entry.Phase.Final() || v.Entry.Gate != nil || !gatedBy(capture, pod) {
		return false
	}
	acc := p.ownAccount()
	if acc == nil || acc.State != account.StateDone || acc.Gate == "" {
		return false
	}
	if p.deleting() { // in the next pass, the agent's Pod and its account may be gone
		return false
	}
	// v.Ended would not do: with a wrong clock of the node it may be the time of the pass, and the wait would never end.
	ended := p.probe().State.Terminated.FinishedAt
	return !ended.After(now.Add(gateReport)) && now.Before(ended.Add(gateReport))
}

// needsProof reports whether the keeper must be asked for the account of a running probe, which says whether it opened the
// gate.
func (p *podState) needsProof(capture sondev1.Capture) bool {
	if capture.Common().Gate == nil || p.pod == nil || p.agent == nil || p.before.Gate != nil || claimsOpened(capture, p.pod.Expand()) == nil {
		return false
	}
	probe := p.probe()
	return probe != nil && probe.State.Running != nil
}

// account returns what the probe has said last, nil if that is not known. Only the account of a probe that has ended by itself is
// Done: the others come from its keeper, or are of a probe that was killed.
func (p *podState) account() *account.Account {
	own := p.ownAccount()
	if own != nil && own.State == account.StateDone {
		return own
	}
	for _, by := range []*account.Account{p.recounted, p.live} {
		if by != nil {
			acc := *by
			acc.State = account.StateCapturing
			return &acc
		}
	}
	return own
}

// ownAccount returns the account in the termination message of a probe, nil if there is none.
func (p *podState) ownAccount() *account.Account {
	if p.agent == nil {
		return nil
	}
	probe := p.probe()
	if probe == nil || probe.State.Terminated == nil {
		return nil
	}
	acc, err := account.Parse([]byte(probe.State.Terminated.Message))
	if err != nil {
		return nil
	}
	return &acc
}

// disproved returns the result of a gate whose Pod is gone, and with it the gate's status. If the probe has ended and says that it
// opened none, the gate was not opened. A gate whose result no pass has read was not either, if the probe recorded its Pod: the probe
// opens a gate as soon as it is attached.
func disproved(before *sondev1.GateResult, acc *account.Account) *sondev1.GateResult {
	if acc == nil || acc.State != account.StateDone || acc.Gate != "" {
		return before
	}
	switch {
	case before == nil && acc.Gated && !acc.Started.IsZero():
		return &sondev1.GateResult{Outcome: sondev1.GateUntraced}
	case before != nil && before.Outcome == sondev1.GateOpened:
		return &sondev1.GateResult{Outcome: sondev1.GateUntraced, WaitedMilliseconds: before.WaitedMilliseconds}
	default:
		return before
	}
}

// probe returns the state of the probe's container in the agent's Pod, or nil.
func (p *podState) probe() *corev1.ContainerStatus {
	containers := p.agent.Expand().Status.ContainerStatuses
	i := slices.IndexFunc(containers, func(c corev1.ContainerStatus) bool { return c.Name == captureconfig.ContainerProbe })
	if i < 0 {
		return nil
	}
	return &containers[i]
}
