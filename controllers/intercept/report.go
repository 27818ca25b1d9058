package intercept

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// maxMessage of a Pod's entry, and maxTarget of the target, in bytes.
const maxMessage, maxTarget = 512, 320

const (
	// maxPods of a status.
	maxPods = 500
	// maxOthers bounds the Pods in a status that an intercept is not to have: they wait for a limit or a node, or can have no carrier. A
	// user may have any number of them in each request, and the manager's cache keeps all statuses. tunnel.MaxRoutedPods bounds the rest.
	maxOthers = 20
)

// statusOf writes the status of one request. It is pure but for q.Status.
func statusOf(q *request, o *observation, p *plan, done *actions, now time.Time) {
	s := &q.Status
	s.Expires = new(metav1.NewTime(q.expires))
	_, target := q.AgentTarget()
	s.Target = naming.Cut(target.String(), maxTarget)
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: q.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if q.refusal != "" || !now.Before(q.expires) {
		over(q, o, set)
		return
	}
	if q.readError != "" {
		set(sondev1.ConditionAdmitted, metav1.ConditionUnknown, sondev1.ReasonNotChecked,
			text.Ellipsis("rights and target could not be read, which is tried again: "+q.readError, maxMessage))
	} else {
		set(sondev1.ConditionAdmitted, metav1.ConditionTrue, sondev1.ReasonAdmitted, "the requester may intercept")
	}
	ready := stowawayCondition(s, o, set)
	connected := ready && clientCondition(q, o, set)
	counts := podEntries(q, o, p, done, connected, clientAnswers(q, o.status, now))
	podsCondition(q, &counts, set)
	switch {
	case counts.active > 0 && connected:
		s.Phase = sondev1.InterceptActive
	case s.Phase == sondev1.InterceptActive || s.Phase == sondev1.InterceptLost:
		s.Phase = sondev1.InterceptPending
		if !connected {
			s.Phase = sondev1.InterceptLost
		}
	default:
		s.Phase = sondev1.InterceptPending
	}
	s.Active = s.Phase == sondev1.InterceptActive
}

// over reports a request that has expired, or may not run. Its Pods keep their last counters.
func over(q *request, o *observation, set func(string, metav1.ConditionStatus, string, string)) {
	s := &q.Status
	s.Active = false
	for i := range s.Pods {
		s.Pods[i].Active, s.Pods[i].Message = false, ""
	}
	q.updateCounters(o.status)
	reason, message := q.refusal, q.message
	s.Phase = sondev1.InterceptFailed
	if reason == "" {
		s.Phase, reason, message = sondev1.InterceptEnded, sondev1.ReasonExpired, "spec.expiresAfter has passed: run kubectl sonde intercept again to go on"
		set(sondev1.ConditionAdmitted, metav1.ConditionTrue, sondev1.ReasonAdmitted, "the requester may intercept")
	} else {
		set(sondev1.ConditionAdmitted, metav1.ConditionFalse, reason, message)
	}
	for _, kind := range []string{sondev1.ConditionStowawayReady, sondev1.ConditionClientConnected, sondev1.ConditionIntercepted} {
		set(kind, metav1.ConditionFalse, reason, message)
	}
}

func stowawayCondition(s *sondev1.InterceptRequestStatus, o *observation, set func(string, metav1.ConditionStatus, string, string)) bool {
	if o.status != nil {
		s.StowawayKey, s.StowawayNamespace = string(o.stowaway.key), o.stowaway.namespace
		set(sondev1.ConditionStowawayReady, metav1.ConditionTrue, sondev1.ReasonStowawayReady, "the cluster's end of the tunnel runs")
		return true
	}
	message := "the cluster's end of the tunnel is starting"
	if o.stowaway.waiting != "" {
		message += ": " + text.Ellipsis(o.stowaway.waiting, maxMessage)
	}
	set(sondev1.ConditionStowawayReady, metav1.ConditionFalse, sondev1.ReasonStowawayStarting, message)
	set(sondev1.ConditionClientConnected, metav1.ConditionUnknown, sondev1.ReasonStowawayStarting, "the developer's machine connects when the cluster's end of the tunnel runs")
	return false
}

func clientCondition(q *request, o *observation, set func(string, metav1.ConditionStatus, string, string)) bool {
	route, ok := o.status.Routes[string(q.UID)]
	if ok && !route.Heartbeat.IsZero() {
		q.Status.Heartbeat = new(metav1.NewTime(route.Heartbeat.Truncate(time.Minute)))
		if q.Status.Heartbeat.Before(&q.CreationTimestamp) {
			q.Status.Heartbeat = q.CreationTimestamp.DeepCopy()
		}
	}
	switch {
	case ok && route.Connected:
		set(sondev1.ConditionClientConnected, metav1.ConditionTrue, sondev1.ReasonClientConnected, "the developer's machine is connected")
		return true
	case q.Status.Heartbeat != nil: // perhaps of a Stowaway before this one
		set(sondev1.ConditionClientConnected, metav1.ConditionFalse, sondev1.ReasonClientLost, "the developer's machine does not answer; the app answers requests")
	default:
		set(sondev1.ConditionClientConnected, metav1.ConditionFalse, sondev1.ReasonClientAwaited,
			"the developer's machine, on which kubectl sonde intercept runs, is not connected yet")
	}
	return false
}

// knownPods returns the chosen Pods of a request if Stowaway knows the request, and none before. Another request may have the others, and
// the same port of them.
func knownPods(q *request, s *tunnel.Status, chosen map[string]bool) map[string]bool {
	if s == nil {
		return nil
	}
	if _, known := s.Routes[string(q.UID)]; !known {
		return nil
	}
	return chosen
}

// podCounts counts the Pods of a target, also those that the status does not list.
type podCounts struct {
	// active Pods are intercepted.
	active int
	// waiting Pods have no carrier for the request before a limit or a node allows it; excluded ones never have.
	waiting, excluded int
	// listed of these have an entry in the status.
	listed int
	// stopped Pods have no carrier of any request, and the status says why, or would.
	stopped int
	// reason of the condition Intercepted: the Pods wait for the client, nothing listens in one of them, or their carriers start.
	reason string
	// why is the message of the Pod that the reason is about, if it is about one.
	why string
}

// lossMargin is how long after a client's last answer and its gracePeriod its carriers may still steer. The loss is noticed after 3 s,
// and the carriers learn of it later.
const lossMargin = 5 * time.Second

// clientAnswers reports whether connections may go to the request's client, or wait for it. That a port is steered does not say so: another
// request of the same port may be the reason.
func clientAnswers(q *request, s *tunnel.Status, now time.Time) bool {
	if s == nil {
		return false
	}
	route := s.Routes[string(q.UID)]
	grace, err := duration.Parse(q.Spec.GracePeriod)
	return route.Connected || err == nil && now.Sub(route.Heartbeat) < grace+lossMargin
}

// podEntries describes the Pods of the target, and counts them.
func podEntries(q *request, o *observation, p *plan, done *actions, connected, answers bool) podCounts {
	s := &q.Status
	before, n := s.Pods, podCounts{reason: sondev1.ReasonCarriersStarting}
	last := map[string]sondev1.InterceptCounters{} // of the Pods in the status, by UID
	for i := range before {
		last[before[i].UID] = before[i].InterceptCounters
	}
	chosen := p.chosenPods(q)
	s.Pods = make([]sondev1.InterceptPod, 0, min(len(q.pods), len(chosen)+p.maxOthers(q), maxPods)) // they are kept until the next pass
	routed := knownPods(q, o.status, chosen)
	for _, pod := range q.pods {
		uid := string(pod.GetUID())
		if !chosen[uid] && !n.addOther(q, o, p, pod) {
			q.unlist(o.status, uid, last)
			continue
		}
		e := podEntry(q, o, p, done, pod, routed[uid] && answers)
		e.InterceptCounters = q.reported(o.status, uid, last[uid])
		delete(last, uid)
		n.addChosen(q, o, &e, routed[uid], connected)
		if e.Job == "" && e.Message != "" {
			n.stopped++
		}
		if len(s.Pods) < maxPods {
			s.Pods = append(s.Pods, e)
		}
	}
	s.PodsOmitted = int32(min(len(q.pods)-len(s.Pods), math.MaxInt32)) //nolint:gosec // bounded
	for i := range before {
		if counters, left := last[before[i].UID]; left {
			before[i].InterceptCounters = q.reported(o.status, before[i].UID, counters)
			q.drop(before[i])
		}
	}
	return n
}

// addChosen counts a Pod that the request is to have, and explains why a carrier that runs does not intercept it; known: Stowaway knows that
// the request has the Pod.
func (n *podCounts) addChosen(q *request, o *observation, e *sondev1.InterceptPod, known, connected bool) {
	switch {
	case e.Active:
		n.active++
	case !known || !o.status.Carriers[e.UID].Connected:
	case !connected:
		n.reason, e.Message = clientMissing(&q.Status)
	case unserved(q, o.status, e.UID):
		n.reason = sondev1.ReasonNothingListens
		e.Message = fmt.Sprintf("nothing listens on port %d in the Pod, which may differ from its Service's port", q.Spec.TargetContainerPort)
		n.why = cmp.Or(n.why, aboutPod(e))
	}
}

// addOther counts a Pod that the request is not to have. It reports whether the status lists the Pod.
func (n *podCounts) addOther(q *request, o *observation, p *plan, pod *slim.Pod) bool {
	uid := pod.GetUID()
	if p.excluded[uid] != "" {
		n.excluded++
	} else {
		n.waiting++
	}
	explained := p.excluded[uid] != "" || p.waiting[q.UID][uid] != ""
	if explained && n.listed < p.maxOthers(q) {
		n.listed++
		return true
	}
	if o.carriers[uid] == nil { // otherwise another request has the Pod
		n.stopped++
	}
	return false
}

// chosenPods has the UIDs of the Pods that a request is to intercept.
func (p *plan) chosenPods(q *request) map[string]bool {
	chosen := map[string]bool{}
	for _, uid := range p.chosen[q.UID] {
		chosen[uid] = true
	}
	return chosen
}

// maxOthers is how many Pods a request's status lists that the request is not to have. If the request has no place among those that
// intercept, all its Pods wait for the same. There may be any number of such requests.
func (p *plan) maxOthers(q *request) int {
	if _, placed := p.chosen[q.UID]; !placed {
		return 1
	}
	return maxOthers
}

// unlist handles a Pod of the target that the status does not list, and perhaps did. Its carrier, if it gets one, counts from 0.
func (q *request) unlist(s *tunnel.Status, uid string, last map[string]sondev1.InterceptCounters) {
	if counters, listed := last[uid]; listed {
		counters = q.reported(s, uid, counters)
		q.Status.RemovedPods = new(sum(q.Status.RemovedPods, &counters))
		delete(last, uid)
	}
}

// notRead is the message of Pods that are not intercepted, because nothing could be read of their request for too long.
const notRead = "rights and target could not be read"

// drop handles a Pod of the status that the target no longer has. If the target could not be read, the Pod may still exist.
func (q *request) drop(e sondev1.InterceptPod) {
	s := &q.Status
	if q.readError == "" {
		s.RemovedPods = new(sum(s.RemovedPods, &e.InterceptCounters))
		return
	}
	e.Active, e.Message = false, notRead
	if len(s.Pods) < maxPods {
		s.Pods = append(s.Pods, e)
	}
}

// clientMissing says what Pods wait for whose carriers are ready, while the client is not connected.
func clientMissing(s *sondev1.InterceptRequestStatus) (reason, message string) {
	if c := apimeta.FindStatusCondition(s.Conditions, sondev1.ConditionClientConnected); c != nil && c.Reason == sondev1.ReasonClientLost {
		return sondev1.ReasonClientLost, "the app answers until the developer's machine returns"
	}
	return sondev1.ReasonClientAwaited, "the carrier waits for the developer's machine"
}

// updateCounters writes into the Pods of the status what their carriers have reported since.
func (q *request) updateCounters(s *tunnel.Status) {
	for i := range q.Status.Pods {
		e := &q.Status.Pods[i]
		e.InterceptCounters = q.reported(s, e.UID, e.InterceptCounters)
	}
}

// reported returns what the carrier of a Pod has counted for the request. These are the last counters if Stowaway knows none: it, or the
// carrier, may just have started.
func (q *request) reported(s *tunnel.Status, uid string, last sondev1.InterceptCounters) sondev1.InterceptCounters {
	if s == nil {
		return last
	}
	if c, ok := s.Carriers[uid].Routes[string(q.UID)]; ok {
		return countersOf(c)
	}
	return last
}

// sum adds counters. A carrier that was taken over may report any number, so each sum has a bound.
func sum(all ...*sondev1.InterceptCounters) sondev1.InterceptCounters {
	var total sondev1.InterceptCounters
	add := func(to *int64, n int64) { *to += min(n, math.MaxInt64-*to) }
	for _, c := range all {
		if c == nil {
			continue
		}
		add(&total.Connections, c.Connections)
		add(&total.Matched, c.Matched)
		add(&total.Passed, c.Passed)
		add(&total.Failed, c.Failed)
		add(&total.Overlaps, c.Overlaps)
		add(&total.BytesToClient, c.BytesToClient)
		add(&total.BytesFromClient, c.BytesFromClient)
	}
	return total
}

// podEntry describes one Pod of the target but for its counters; routed: Stowaway knows that the request has it, and connections may go
// to the client.
func podEntry(q *request, o *observation, p *plan, done *actions, pod *slim.Pod, routed bool) sondev1.InterceptPod {
	uid := pod.GetUID()
	e := sondev1.InterceptPod{Name: pod.GetName(), UID: string(uid)}
	if o.standing(pod) != onMissingNode { // a made-up name may be long, and differ for each Pod
		e.Node = pod.Node()
	}
	if c := o.carriers[uid]; c != nil {
		e.Job = c.job.GetName()
		e.Message = c.waiting()
	}
	switch {
	case p.excluded[uid] != "":
		e.Message = p.excluded[uid]
	case p.waiting[q.UID][uid] != "":
		e.Message = p.waiting[q.UID][uid]
	case done.refused[uid] != "":
		e.Message = done.refused[uid]
	}
	e.Message = text.OneLine(e.Message, maxMessage) // it may have the last words of a carrier that was taken over
	if o.status == nil {
		return e
	}
	status := o.status.Carriers[string(uid)]
	e.Active = routed && status.Connected && slices.Contains(status.Steered, uint16(q.Spec.TargetContainerPort)) //nolint:gosec // the schema bounds it
	switch {
	case e.Active:
		e.Message = ""
	case status.Connected && e.Message == carrierStarting:
		e.Message = "the carrier has just started, or has no room for more connections"
	}
	return e
}

// unserved reports whether a Pod's carrier says that the app does not listen on the request's port.
func unserved(q *request, s *tunnel.Status, pod string) bool {
	return slices.Contains(s.Carriers[pod].Unserved, uint16(q.Spec.TargetContainerPort)) //nolint:gosec // the schema bounds it
}

func countersOf(c tunnel.Counters) sondev1.InterceptCounters {
	n := func(v uint64) int64 { return int64(min(v, 1<<62)) } //nolint:gosec // bounded
	return sondev1.InterceptCounters{
		Connections: n(c.Connections), Matched: n(c.Matched), Passed: n(c.Passed), Failed: n(c.Failed), Overlaps: n(c.Overlaps),
		BytesToClient: n(c.BytesToClient), BytesFromClient: n(c.BytesFromClient),
	}
}

// carrierStarting is the message of a Pod whose carrier says nothing else.
const carrierStarting = "the carrier is starting"

// waiting says what a carrier that does not intercept yet waits for, or why it has failed.
func (c *carrier) waiting() string {
	if c.agent == nil {
		if c.ended() {
			return "the carrier has failed; another one follows"
		}
		return "the carrier's Pod is being created"
	}
	pod := c.agent.Expand()
	why := ""
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Terminated != nil && s.State.Terminated.Message != "":
			o, err := handover.ParseOutcome([]byte(s.State.Terminated.Message))
			if err == nil && o.Reason != handover.ReasonCarrierGone { // an opener that has ended by itself, so its carrier has ended too
				return s.Name + " has ended: " + o.Message
			}
			why = cmp.Or(why, s.Name+" has ended: "+cmp.Or(o.Message, s.State.Terminated.Message))
		case s.State.Waiting != nil && s.State.Waiting.Message != "":
			why = cmp.Or(why, s.State.Waiting.Reason+": "+s.State.Waiting.Message)
		}
	}
	if why != "" {
		return why
	}
	if pod.Status.Message != "" { // the kubelet has refused the Pod
		return pod.Status.Reason + ": " + pod.Status.Message
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != "True" && condition.Message != "" {
			return condition.Message
		}
	}
	return carrierStarting
}

// problem returns the first message of a Pod.
func problem(s *sondev1.InterceptRequestStatus) string {
	for i := range s.Pods {
		if e := &s.Pods[i]; e.Message != "" {
			return aboutPod(e)
		}
	}
	return ""
}

func aboutPod(e *sondev1.InterceptPod) string { return "Pod " + e.Name + ": " + e.Message }

// podsCondition sets the condition Intercepted.
func podsCondition(q *request, n *podCounts, set func(string, metav1.ConditionStatus, string, string)) {
	all, why := len(q.pods), cmp.Or(n.why, problem(&q.Status))
	counted := fmt.Sprintf("%d of %d Pods are intercepted", n.active, all)
	if q.Status.PodsOmitted > 0 { // otherwise the entries say this
		counted += n.others()
	}
	if why != "" {
		counted += "; " + why
	}
	switch {
	case q.readError != "" && all == 0:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, sondev1.ReasonNotChecked, notRead+", so no Pod is intercepted")
	case !q.targetFound && all == 0:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, sondev1.ReasonTargetNotFound, "the target does not exist; it is intercepted when it does")
	case all == 0:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, sondev1.ReasonNoPods, "the target has no running Pod; its Pods are intercepted when they start")
	case n.active == all:
		set(sondev1.ConditionIntercepted, metav1.ConditionTrue, sondev1.ReasonIntercepted, fmt.Sprintf("%d of %d Pods are intercepted", all, all))
	case n.stopped == all && q.Status.PodsOmitted == 0:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, sondev1.ReasonNotInterceptable, why)
	case n.stopped == all:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, sondev1.ReasonNotInterceptable, text.Ellipsis(counted, maxMessage))
	default:
		set(sondev1.ConditionIntercepted, metav1.ConditionFalse, n.reason, text.Ellipsis(counted, maxMessage))
	}
}

// others says how many Pods the request is not to have.
func (n *podCounts) others() (s string) {
	if n.waiting > 0 {
		s = fmt.Sprintf(", %d wait", n.waiting)
	}
	if n.excluded > 0 {
		s += fmt.Sprintf(", %d cannot be", n.excluded)
	}
	return s
}

// summary is the note of a transition's event.
func summary(q *request) string {
	for _, kind := range []string{sondev1.ConditionAdmitted, sondev1.ConditionClientConnected, sondev1.ConditionIntercepted} {
		if c := apimeta.FindStatusCondition(q.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return c.Message
		}
	}
	return "the developer's machine answers"
}
