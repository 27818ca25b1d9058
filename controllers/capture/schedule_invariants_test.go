package capture

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/test/memapi"
)

// afterWrite checks the invariants after a manager's write.
func (s *schedule) afterWrite(m *replica, verb string, key memapi.Key, err error) {
	if err != nil {
		return
	}
	there := s.api.Objects[key]
	switch {
	case verb == "create":
		s.checkCreated(m, key, there)
		if job, ok := there.(*batchv1.Job); ok {
			s.newAgent(job)
			s.createLate(job)
		}
	case key.Kind == "PacketCapture" && there != nil:
		s.checkStatus(m, there.(*sondev1.PacketCapture))
	}
}

// checkCreated checks that the manager creates nothing without a valid admission, and nothing twice.
func (s *schedule) checkCreated(m *replica, key memapi.Key, o client.Object) {
	c := s.truth(types.UID(o.GetLabels()[sondev1.LabelUID]))
	switch {
	case c == nil:
		s.Fail("%s has no owner", key)
		return
	case c.refusedAt != 0 && c.refusedAt < m.since:
		s.Fail("%s is created for %s, which was not admitted when the pass began", key, c.uid)
	}
	job, ok := o.(*batchv1.Job)
	if !ok {
		return
	}
	pod := types.UID(job.Labels[sondev1.LabelTargetPodUID])
	c.jobs[pod]++
	// Two managers may use different names: each takes the first that is free (checkSurplus).
	by := creator{pod, m}
	c.created[by]++
	if c.created[by]-c.removed[pod] > 1 {
		s.Fail("%s is Job number %d for Pod %s of capture %s, and others deleted only %d", key, c.jobs[pod], pod, c.uid, c.removed[pod])
	}
}

// checkDeleted checks that the manager deletes nothing that is still needed.
func (s *schedule) checkDeleted(m *replica, o client.Object) {
	c := s.truth(types.UID(o.GetLabels()[sondev1.LabelUID]))
	if c == nil {
		s.Fail("%s deletes %s, which is not its own", m, s.api.KeyOf(o))
		return
	}
	job, ok := o.(*batchv1.Job)
	pc := s.live(c)
	switch {
	case pc == nil && ok: // an old leader may create it again after the sweep, and then it is swept again
		c.removed[types.UID(job.Labels[sondev1.LabelTargetPodUID])]++
		return
	case pc == nil, c.cutOff:
		return
	case !ok:
		if !pc.Status.Phase.Final() {
			s.Fail("%s deletes %s of capture %s, which is %q", m, s.api.KeyOf(o), c.uid, pc.Status.Phase)
		}
		return
	}
	a := s.agentOf(job.UID)
	if s.others(a) > 0 {
		s.excuse(a, "the Pod has another Job")
		c.removed[a.target]++
		return
	}
	e := s.entryOf(a)
	kept := e == nil || !e.Phase.Final() || e.Phase == sondev1.PhaseCompleted // other verdicts have no result to keep
	if a.isComplete() && !a.filesGone && a.excuse == "" && kept && s.clock.Now().Before(a.endedAt.Add(a.retain-time.Second)) {
		s.Fail("%s deletes %s, whose complete result must be kept until %s", m, a.jobKey, a.endedAt.Add(a.retain).Sub(dawn))
	}
}

// createLate sometimes creates a second Job, as a manager does that has lost its lead and found the first name taken.
func (s *schedule) createLate(job *batchv1.Job) {
	// From a source of its own: the seeds that once found bugs must go on as before.
	if own := rand.New(rand.NewPCG(s.seed, 1000+uint64(len(s.agents)))); s.calm || s.faults == 0 || own.IntN(25) > 0 {
		return
	}
	late := job.DeepCopy()
	late.ObjectMeta = metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-" + naming.Short(types.UID(job.Labels[sondev1.LabelUID])), Labels: job.Labels, Annotations: job.Annotations,
	}
	if s.api.Create(late) != nil {
		return
	}
	s.Trace("a former leader creates %s", s.api.KeyOf(late))
	s.events++
	s.newAgent(late)
}

// others returns how many other Jobs a Pod has for its capture.
func (s *schedule) others(a *agent) int {
	n := 0
	for _, job := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if b := s.agentOf(job.UID); b != nil && b != a && b.capture == a.capture && b.target == a.target {
			n++
		}
	}
	return n
}

// surplusTime is how long a Pod may have two Jobs.
const surplusTime = 10 * time.Second

// checkSurplus checks at rest that no Pod has two Jobs for long.
func (s *schedule) checkSurplus() {
	for _, a := range s.agents {
		c := s.truth(a.capture)
		job := s.api.Objects[a.jobKey]
		switch {
		case c == nil || s.live(c) == nil || job == nil || job.GetUID() != a.job || s.others(a) == 0:
			a.surplusSince = time.Time{}
		case a.surplusSince.IsZero():
			a.surplusSince = s.clock.Now()
		case s.clock.Since(a.surplusSince) > surplusTime:
			s.Fail("Pod %s has had two Jobs since %s, one is %s", a.target, a.surplusSince.Sub(dawn), a.jobKey)
		}
	}
}

// checkStatus checks that the status is true, and that nothing final has changed.
func (s *schedule) checkStatus(m *replica, pc *sondev1.PacketCapture) {
	c := s.truth(pc.UID)
	if c == nil {
		return
	}
	c.patches++
	status := pc.Status.DeepCopy()
	var sum sondev1.Totals
	for i := range status.Pods {
		e := &status.Pods[i]
		s.checkEntry(c, e)
		sum.Packets += e.Packets
		sum.Bytes += e.Bytes
		sum.Dropped += e.Dropped.Total()
		sum.Truncated += e.Truncated
		if status.Phase == sondev1.PhaseCompleted && e.Phase != sondev1.PhaseCompleted || status.Phase.Final() && !e.Phase.Final() {
			s.Fail("capture %s is %s, and its Pod %s is %s", c.uid, status.Phase, e.Name, e.Phase)
		}
	}
	t := status.Totals
	if got := (sondev1.Totals{Packets: t.Packets, Bytes: t.Bytes, Dropped: t.Dropped, Truncated: t.Truncated}); got != sum {
		s.Fail("capture %s: totals %+v, its Pods have %+v", c.uid, got, sum)
	}
	s.checkRunningProbes(m, c, c.last, status)
	s.checkJoined(c, pc)
	s.checkDeparted(m, c, pc)
	if c.last != nil {
		s.checkFinalUnchanged(c, c.last, status)
	}
	c.last = status
}

// checkEntry checks that a Pod's entry claims no more than its files hold.
func (s *schedule) checkEntry(c *captureTruth, e *sondev1.PodResult) {
	var agents []*agent
	for _, a := range s.agents {
		if a.capture == c.uid && a.target == types.UID(e.UID) {
			agents = append(agents, a)
		}
	}
	held := slices.ContainsFunc(agents, func(a *agent) bool {
		if e.Phase == sondev1.PhaseCompleted && (!a.isComplete() || a.account.Packets != e.Packets || a.account.Bytes != e.Bytes) {
			return false
		}
		if e.Phase == sondev1.PhaseCompleted && a.claimed && !s.mayBeAsked(c, a) {
			return false
		}
		if e.Phase == sondev1.PhaseCapturing && !a.attached {
			return false
		}
		if a.account == nil {
			return e.Packets == 0 && e.Bytes == 0 && len(e.Files) == 0
		}
		for _, f := range e.Files {
			if !slices.ContainsFunc(a.account.Files, func(have account.File) bool { return have.Name == f.Name && have.Bytes >= f.Bytes }) {
				return false
			}
		}
		return e.Packets <= a.account.Packets && e.Bytes <= a.account.Bytes
	})
	claims := e.Packets > 0 || len(e.Files) > 0 || e.Phase == sondev1.PhaseCompleted || e.Phase == sondev1.PhaseCapturing
	if claims && !held {
		s.Fail("capture %s, Pod %s: the status says %s, %d packets, files %v, and no probe has that", c.uid, e.Name, e.Phase, e.Packets, e.Files)
	}
}

// mayBeAsked reports whether a manager may have asked to end a probe: the capture is stopped, or the Pod is gone. A probe that finds
// no process needs a Pod that is gone or being deleted.
func (s *schedule) mayBeAsked(c *captureTruth, a *agent) bool {
	pc := s.live(c)
	pod, _ := s.api.Objects[a.targetKey].(*corev1.Pod)
	stops := pc == nil || pc.Spec.Stop && !a.found
	return stops || pod == nil || pod.UID != a.target || !target.Live(pod) || a.found && pod.DeletionTimestamp != nil
}

// checkRunningProbes checks that there is no final verdict on a probe that the manager knows to run.
func (s *schedule) checkRunningProbes(m *replica, c *captureTruth, before, now *sondev1.CaptureStatus) {
	for _, a := range s.agents {
		i := slices.IndexFunc(now.Pods, func(e sondev1.PodResult) bool { return e.UID == string(a.target) })
		pod, ok := s.podOf(a)
		if a.capture != c.uid || i < 0 || !now.Pods[i].Phase.Final() || c.cutOff || !ok || pod.DeletionTimestamp != nil {
			continue
		}
		if job := now.Pods[i].Job; job != "" && job != a.jobKey.Name { // it is the Pod's second Job
			continue
		}
		final := before != nil && slices.ContainsFunc(before.Pods, func(e sondev1.PodResult) bool { return e.UID == string(a.target) && e.Phase.Final() })
		if !final && a.attached && a.attachedStep < m.since && !a.reported && s.nodes[a.node] == nodeReady {
			s.Fail("%s makes %s final (%s), whose probe runs", m, a.podKey, now.Pods[i].Reason)
		}
	}
}

// checkJoined checks that a Pod that joined before the end has an entry when the status becomes final.
func (s *schedule) checkJoined(c *captureTruth, pc *sondev1.PacketCapture) {
	end := pc.Status.EndTime
	first := pc.Status.Phase.Final() && (c.last == nil || !c.last.Phase.Final())
	if !first || end == nil || s.clock.Now().Before(end.Time) || c.cutOff {
		return
	}
	for _, pod := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		overdue := pod.DeletionTimestamp != nil && !s.clock.Now().Before(pod.DeletionTimestamp.Time)
		if pod.Namespace != "shop" || !target.Live(pod) || overdue || !pod.CreationTimestamp.Time.Before(end.Time) || !s.wanted(pc, pod) {
			continue
		}
		if !slices.ContainsFunc(pc.Status.Pods, func(e sondev1.PodResult) bool { return e.UID == string(pod.UID) }) {
			s.Fail("capture %s ends at %s, and Pod %s, created at %s, is in no entry", c.uid, end.Sub(dawn), pod.Name, pod.CreationTimestamp.Sub(dawn))
		}
	}
}

// wanted reports whether a Pod of the target belongs to a capture that has ended: it had a node before the end and, without followPods, existed
// at the start.
func (s *schedule) wanted(pc *sondev1.PacketCapture, pod *corev1.Pod) bool {
	start, end := pc.Status.StartTime, pc.Status.EndTime
	if at, late := s.boundAt[pod.UID]; late && !at.Before(end.Time) {
		return false
	}
	return pc.Common().FollowPods || start != nil && !pod.CreationTimestamp.After(start.Time)
}

// checkDeparted checks that a Pod that came and went during the capture has an entry when the status becomes final, or that the
// status says that Pods were not watched then.
func (s *schedule) checkDeparted(m *replica, c *captureTruth, pc *sondev1.PacketCapture) {
	start, end := pc.Status.StartTime, pc.Status.EndTime
	first := pc.Status.Phase.Final() && (c.last == nil || !c.last.Phase.Final())
	if !first || start == nil || end == nil || c.cutOff {
		return
	}
	for i, change := range s.api.Log[:m.podsAt] {
		pod, ok := departs(change.Old, change.Now).(*corev1.Pod)
		observed := i >= m.podsFrom && !m.skipped[i]
		if !observed && !m.skipped[i] && !m.inGap(change.At) { // an earlier leader observed it
			continue
		}
		if !ok || pod.Namespace != "shop" || !s.wanted(pc, pod) || m.unaware[unawareOf{c.uid, pod.UID}] ||
			change.At.Before(start.Add(time.Second)) || !pod.CreationTimestamp.Time.Before(end.Time) { // startTime is cut to its second
			continue
		}
		if pod.DeletionTimestamp != nil && !pod.DeletionTimestamp.After(start.Time) { // it was overdue
			continue
		}
		listed := slices.ContainsFunc(pc.Status.Pods, func(e sondev1.PodResult) bool { return e.UID == string(pod.UID) })
		unwatched := slices.ContainsFunc(pc.Status.Unwatched, func(t sondev1.Timespan) bool {
			return !change.At.Before(t.From.Time) && !pod.CreationTimestamp.After(t.To.Time)
		})
		if !listed && (observed || !unwatched) {
			s.Fail("capture %s lasts from %s to %s, and Pod %s, created at %s and gone at %s, is in no entry",
				c.uid, start.Sub(dawn), end.Sub(dawn), pod.Name, pod.CreationTimestamp.Sub(dawn), change.At.Sub(dawn))
		}
	}
}

// inGap reports whether the manager knows that it did not watch at this time.
func (m *replica) inGap(t time.Time) bool {
	return slices.ContainsFunc(m.r.PodWatch.Gaps(), func(g podwatch.Gap) bool { return !t.Before(g.From) && !t.After(g.To) })
}

// checkFinalUnchanged checks that final entries stay, except for files that are gone.
func (s *schedule) checkFinalUnchanged(c *captureTruth, before, now *sondev1.CaptureStatus) {
	if before.Phase.Final() && (now.Phase != before.Phase || now.Totals != before.Totals || !now.CompletionTime.Equal(before.CompletionTime)) {
		s.Fail("capture %s was %s with %+v, and is %s with %+v", c.uid, before.Phase, before.Totals, now.Phase, now.Totals)
	}
	for i := range before.Pods {
		was := before.Pods[i]
		j := slices.IndexFunc(now.Pods, func(e sondev1.PodResult) bool { return e.UID == was.UID })
		if j < 0 {
			s.Fail("capture %s: the entry of Pod %s is gone", c.uid, was.Name)
			continue
		}
		is := now.Pods[j]
		if !was.Phase.Final() {
			continue
		}
		if len(is.Files) == 0 {
			was.Files, was.AvailableUntil = nil, nil
			if was.Message == "" {
				was.Message = is.Message
			}
		}
		if diff := cmp.Diff(was, is); diff != "" {
			s.Fail("capture %s: the final entry of Pod %s changes (-before +now):\n%s", c.uid, was.Name, diff)
		}
	}
	if before.JobID != "" && before.JobID != now.JobID {
		s.Fail("capture %s: jobId %s becomes %s", c.uid, before.JobID, now.JobID)
	}
}

// checkEnd checks the state hours after the last fault.
func (s *schedule) checkEnd() {
	s.Steps++
	for _, c := range s.captures {
		s.checkCaptureEnd(c)
	}
	m := s.leader
	m.catchUp(s.clock.Now())
	m.sweep()
	for _, kind := range []string{"Job", "ConfigMap", "Secret"} {
		for _, o := range memapi.Of[client.Object](s.api.Objects, kind) {
			if uid := o.GetLabels()[sondev1.LabelUID]; uid != "" {
				s.Fail("hours later, and after a sweep, %s of capture %s is still there", s.api.KeyOf(o), uid)
			}
		}
	}
	s.passOverAll() // for lost events
	before := s.allWrites()
	s.passOverAll()
	if n := s.allWrites() - before; n > 0 {
		s.Fail("a pass over an unchanged world writes %d times", n)
	}
	jobs := 0
	for _, c := range s.captures {
		for _, n := range c.jobs {
			jobs += n
		}
	}
	// Creates, deletes and patches are bounded by the number of disturbances.
	if most := 12*len(s.captures) + 7*jobs + 4*s.events + 3*s.failures + 3*s.replicas + 3*s.pods; before > most {
		s.Fail("%d writes for %d captures, %d Jobs, %d faults, %d events and %d managers, want at most %d (%v)",
			before, len(s.captures), jobs, s.failures, s.events, s.replicas, most, s.writes)
	}
}

func (s *schedule) passOverAll() {
	s.leader.catchUp(s.clock.Now())
	for _, k := range s.captureKeys() {
		s.leader.reconcile(k)
	}
	s.leader.catchUp(s.clock.Now())
}

func (s *schedule) allWrites() int {
	n := 0
	for _, w := range s.writes {
		n += w
	}
	return n
}

func (s *schedule) checkCaptureEnd(c *captureTruth) {
	pc := s.live(c)
	if pc == nil {
		return
	}
	if !pc.Status.Phase.Final() {
		s.Fail("hours later, capture %s is %q", c.uid, pc.Status.Phase)
	}
	for _, a := range s.agents {
		if a.capture != c.uid || !a.isComplete() || !a.reported || a.excuse != "" || a.claimed || c.cutOff {
			continue
		}
		if e := s.entryOf(a); e == nil || e.Phase != sondev1.PhaseCompleted || e.Packets != a.account.Packets {
			s.Fail("the result of %s was complete, and its entry is %+v", a.podKey, e)
		}
	}
}
