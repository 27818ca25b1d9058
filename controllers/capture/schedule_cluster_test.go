package capture

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/memapi"
)

// fate is how a probe ends if nothing interferes.
type fate int

const (
	runsItsTime      fate = iota
	reachesLimit          // ends early with a complete account
	isKilled              // SIGKILL before its first account
	isKilledLate          // SIGKILL after it had written a running account
	fillsDisk             // ends early, Incomplete
	doesNotAddUp          // a complete account that is wrong
	neverAttaches         // ends with an error before it is attached
	neverStarts           // its image cannot be pulled
	isRefusedForever      // the API server refuses the Job's Pod
	isRefusedAtFirst      // and allows it later
)

// agent is the real state of one Job's Pod, its processes and its files. The API server may know less.
type agent struct {
	job, capture, target types.UID
	jobKey, podKey       memapi.Key
	targetKey            memapi.Key
	node                 string
	fate                 fate
	duration, retain     time.Duration
	podAt, startAt       time.Time // when its Pod is created, when it starts
	attachAt, endAt      time.Time
	attachedAt           time.Time
	attachedStep         int
	ip                   string

	created, running, attached, refused bool
	stop                                string // asked by the manager
	// claim is the reason by which a keeper that was taken over ends its probe, which lasts claimAfter; empty for the others.
	claim      string
	claimAfter time.Duration
	claimed    bool
	// found says that the probe itself finds no process, although its Pod lives: no keeper was taken over.
	found                 bool
	account               *account.Account
	exit                  int32
	endedAt               time.Time
	ended, reported, over bool
	filesGone             bool // deleted with the Pod or its node, or by eviction
	// excuse says why a complete result need not be in the status; empty if it must.
	excuse string
	// surplusSince is when the Pod was first seen to have another Job too.
	surplusSince time.Time
}

// isComplete reports whether the probe ended as requested, with a complete account.
func (a *agent) isComplete() bool {
	return a.ended && a.account != nil && a.account.Complete && a.account.AddsUp() &&
		a.account.Reason != sondev1.ReasonAccessRevoked && a.account.Reason != sondev1.ReasonPaused
}

func (s *schedule) agentOf(job types.UID) *agent {
	for _, a := range s.agents {
		if a.job == job {
			return a
		}
	}
	return nil
}

// newAgent decides the fate of a Job that was just created.
func (s *schedule) newAgent(job *batchv1.Job) {
	now := s.clock.Now()
	within := func(seconds int) time.Duration { return time.Duration(s.rand.IntN(seconds*1000)) * time.Millisecond }
	a := &agent{
		job: job.UID, capture: types.UID(job.Labels[sondev1.LabelUID]), target: types.UID(job.Labels[sondev1.LabelTargetPodUID]),
		jobKey: s.api.KeyOf(job), podKey: memapi.KeyFor("Pod", operatorNamespace, job.Name+"-"+string(job.UID[:8])),
		targetKey: memapi.KeyFor("Pod", job.Annotations[sondev1.AnnotationTargetNamespace], job.Annotations[sondev1.AnnotationTargetPod]),
		node:      job.Annotations[sondev1.AnnotationTargetNode], ip: fmt.Sprintf("10.1.%d.%d", len(s.agents)/200, 1+len(s.agents)%200),
		duration: argument(job, 0, "--duration"), retain: argument(job, 1, "--retain"),
		podAt: now.Add(within(2)),
	}
	a.startAt = a.podAt.Add(within(6))
	a.attachAt = a.startAt.Add(within(4))
	if !s.calm {
		a.fate = s.pickFate()
		if s.rand.IntN(12) == 0 {
			a.startAt = a.startAt.Add(time.Duration(s.rand.IntN(330)) * time.Second) // about as long as it may take
		}
	}
	if own := rand.New(rand.NewPCG(s.seed, 100+uint64(len(s.agents)))); !s.calm && own.IntN(8) == 0 {
		a.claim, a.found = []string{sondev1.ReasonStopped, sondev1.ReasonTargetGone}[own.IntN(2)], own.IntN(3) == 0
		if a.found {
			a.claim = sondev1.ReasonTargetGone
		}
		a.claimAfter = a.duration * time.Duration(own.IntN(10)) / 10
	}
	s.agents = append(s.agents, a)
}

func (s *schedule) pickFate() fate {
	if s.rand.IntN(2) == 0 {
		return runsItsTime
	}
	return fate(s.rand.IntN(int(isRefusedAtFirst) + 1))
}

func argument(job *batchv1.Job, container int, name string) time.Duration {
	args := job.Spec.Template.Spec.Containers[container].Args
	d, err := time.ParseDuration(args[slices.Index(args, name)+1])
	if err != nil {
		panic(err)
	}
	return d
}

// play lets the rest of the cluster take one step for an agent, and reports whether something happened. If not, the agent
// acts when time has passed, or never.
func (s *schedule) play(a *agent) bool {
	if a.over {
		return false
	}
	job, _ := s.api.Objects[a.jobKey].(*batchv1.Job)
	if job != nil && job.UID != a.job {
		job = nil
	}
	pod, _ := s.api.Objects[a.podKey].(*corev1.Pod)
	return s.playNode(a, pod) || s.playJob(a, job, pod)
}

// playJob plays the Job controller, the TTL controller, and the garbage collector.
func (s *schedule) playJob(a *agent, job *batchv1.Job, pod *corev1.Pod) bool {
	now := s.clock.Now()
	switch {
	case job == nil && pod == nil:
		a.over = true
		return true
	case job == nil:
		return s.terminate(a, pod)
	case target.JobEnded(job):
		ttl := time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second
		if end := finishedAt(job); !now.Before(end.Add(ttl)) {
			s.excuse(a, "the Job's time was over")
			return s.api.Delete(a.jobKey, nil) == nil
		}
		return pod != nil && !podOver(pod) && s.terminate(a, pod)
	case !now.Before(job.CreationTimestamp.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second)):
		s.excuse(a, "the Job's deadline was over")
		s.finish(a, batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
		return true
	case !a.created:
		return s.makePod(a, job)
	case pod == nil:
		s.finish(a, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
		return true
	case pod.Status.Phase == corev1.PodSucceeded:
		s.finish(a, batchv1.JobComplete, "")
		return true
	case pod.Status.Phase == corev1.PodFailed:
		s.finish(a, batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
		return true
	}
	return false
}

func podOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func finishedAt(job *batchv1.Job) time.Time { return job.Status.Conditions[0].LastTransitionTime.Time }

func (s *schedule) finish(a *agent, kind batchv1.JobConditionType, reason string) {
	s.Trace("the Job controller ends %s: %s %s", a.jobKey, kind, reason)
	memapi.Edit(s.api, a.jobKey, func(job *batchv1.Job) {
		job.Status.Active = 0
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(s.clock.Now())}}
	})
}

// makePod creates the Pod of a Job, unless the API server refuses it.
func (s *schedule) makePod(a *agent, job *batchv1.Job) bool {
	now := s.clock.Now()
	refused := a.fate == isRefusedForever || a.fate == isRefusedAtFirst && now.Before(a.podAt.Add(90*time.Second))
	switch {
	case now.Before(a.podAt):
		return false
	case refused && a.refused:
		return false
	case refused:
		a.refused = true
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: operatorNamespace, Name: a.jobKey.Name + "-refused"},
			InvolvedObject: corev1.ObjectReference{UID: job.UID}, Reason: "FailedCreate", Message: "exceeded quota", LastTimestamp: metav1.NewTime(now),
		}
		_ = s.api.Create(event)
		return true
	}
	if a.refused {
		a.startAt, a.attachAt = now.Add(time.Second), now.Add(2*time.Second)
	}
	a.created = true
	s.Trace("the Job controller creates %s", a.podKey)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.podKey.Namespace, Name: a.podKey.Name, Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations},
		Spec:       *job.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: captureconfig.ContainerProbe}, {Name: captureconfig.ContainerKeeper}},
		},
	}
	pod.Spec.NodeName = a.node
	if err := s.api.Create(pod); err != nil {
		s.Fail("create %s: %v", a.podKey, err)
	}
	memapi.Edit(s.api, a.jobKey, func(job *batchv1.Job) { job.Status.Active = 1 })
	return true
}

// terminate asks the kubelet to end a Pod; one that never ran goes at once.
func (s *schedule) terminate(a *agent, pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if !a.running {
		return s.api.Delete(a.podKey, nil) == nil
	}
	s.Trace("%s is deleted", a.podKey)
	a.filesGone = true
	now := metav1.NewTime(s.clock.Now())
	memapi.Edit(s.api, a.podKey, func(pod *corev1.Pod) { pod.DeletionTimestamp = &now })
	return true
}

// playNode plays the kubelet of the agent's node, and the agent.
func (s *schedule) playNode(a *agent, pod *corev1.Pod) bool {
	if pod == nil {
		return false
	}
	switch s.nodes[a.node] {
	case nodeGone: // the garbage collector of Pods
		s.excuse(a, "the node was removed")
		a.ended, a.filesGone = true, true
		return s.api.Delete(a.podKey, nil) == nil
	case nodeSilent:
		return false
	case nodeReady:
	}
	now := s.clock.Now()
	switch {
	case podOver(pod) && pod.DeletionTimestamp == nil:
		return false
	case pod.DeletionTimestamp != nil && a.running && !a.ended:
		s.end(a, sondev1.ReasonDrained, false, 0)
	case a.ended && !a.reported:
		s.reportEnd(a)
	case pod.DeletionTimestamp != nil:
		return s.api.Delete(a.podKey, nil) == nil
	case !a.running:
		return s.start(a, pod)
	case !a.ended:
		return s.runProbe(a)
	case !now.Before(a.endedAt.Add(a.retain)):
		s.Trace("the keeper of %s ends", a.podKey)
		memapi.Edit(s.api, a.podKey, func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodSucceeded
			if a.exit != 0 {
				pod.Status.Phase = corev1.PodFailed
			}
			pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now)}}
		})
	default:
		return false
	}
	return true
}

// start runs the containers once their ConfigMap and Secret exist.
func (s *schedule) start(a *agent, pod *corev1.Pod) bool {
	if s.clock.Now().Before(a.startAt) || a.fate == neverStarts {
		return false
	}
	for _, v := range pod.Spec.Volumes {
		var o memapi.Key
		switch {
		case v.ConfigMap != nil:
			o = memapi.KeyFor("ConfigMap", operatorNamespace, v.ConfigMap.Name)
		case v.Secret != nil:
			o = memapi.KeyFor("Secret", operatorNamespace, v.Secret.SecretName)
		default:
			continue
		}
		there := s.api.Objects[o]
		if there == nil {
			return false
		}
		if there.GetLabels()[sondev1.LabelUID] != string(a.capture) {
			// A probe refuses the configuration of another capture.
			if c := s.truth(a.capture); c != nil && s.live(c) != nil && !s.live(c).Status.Phase.Final() {
				s.Fail("%s of %s mounts %s of another capture", a.podKey, a.capture, o)
			}
			return false
		}
	}
	a.running = true
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(s.clock.Now())}}
	memapi.Edit(s.api, a.podKey, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, a.ip
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: captureconfig.ContainerProbe, State: running, Started: new(false)}, {Name: captureconfig.ContainerKeeper, State: running, Started: new(true)},
		}
	})
	return true
}

// runProbe attaches or ends the probe when that is due.
func (s *schedule) runProbe(a *agent) bool {
	now := s.clock.Now()
	pod, _ := s.api.Objects[a.targetKey].(*corev1.Pod)
	gone := pod == nil || pod.UID != a.target || !target.Live(pod)
	switch {
	case !a.attached && (a.stop != "" || gone || a.fate == neverAttaches && !now.Before(a.attachAt)):
		s.end(a, sondev1.ReasonProbeError, false, 1)
	case !a.attached && now.Before(a.attachAt):
		return false
	case !a.attached:
		a.attached, a.attachedAt, a.attachedStep, a.endAt = true, now, s.Steps, now.Add(a.duration)
		if a.fate != runsItsTime && a.fate != doesNotAddUp {
			a.endAt = now.Add(a.duration * time.Duration(1+s.rand.IntN(9)) / 10)
		}
		s.Trace("the probe of %s is attached", a.podKey)
		memapi.Edit(s.api, a.podKey, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Started = new(true) })
	case a.stop != "":
		s.end(a, a.stop, true, 0)
	case gone:
		s.end(a, sondev1.ReasonTargetGone, true, 0)
	case a.claim != "" && !now.Before(a.attachedAt.Add(a.claimAfter)):
		a.claimed = true
		s.end(a, a.claim, true, 0)
	case now.Before(a.endAt):
		return false
	default:
		s.endByFate(a)
	}
	return true
}

func (s *schedule) endByFate(a *agent) {
	switch a.fate {
	case isKilled, isKilledLate:
		s.end(a, sondev1.ReasonKilled, false, exitKilledBySignal)
	case fillsDisk:
		s.end(a, sondev1.ReasonDiskFull, false, 1)
	case reachesLimit:
		s.end(a, sondev1.ReasonPacketLimit, true, 0)
	default:
		s.end(a, sondev1.ReasonDuration, true, 0)
	}
}

const exitKilledBySignal = 137

// end ends a probe. The kubelet reports it later.
func (s *schedule) end(a *agent, reason string, complete bool, exit int32) {
	a.ended, a.endedAt, a.exit = true, s.clock.Now(), exit
	s.Trace("the probe of %s ends: %s", a.podKey, reason)
	if a.fate == isKilled && exit == exitKilledBySignal {
		return
	}
	acc := account.Account{State: account.StateDone, Engine: "afpacket", Reason: reason, Complete: complete, Ended: a.endedAt, Asked: a.claimed && !a.found || reason == a.stop}
	if !a.attached {
		acc.State, acc.Reason = account.StateStarting, reason
		a.account = &acc
		return
	}
	packets := int64(1 + s.rand.IntN(1000))
	acc.Started = a.attachedAt
	acc.Counts = account.Counts{Seen: packets + 7, Packets: packets, Bytes: 100 * packets, DroppedRing: 7}
	acc.Files = []account.File{{Name: a.jobKey.Name + ".pcapng", Bytes: 120 * packets}}
	if a.fate == doesNotAddUp {
		acc.Seen++
	}
	if exit == exitKilledBySignal {
		acc.State, acc.Reason = account.StateCapturing, ""
	}
	a.account = &acc
}

// reportEnd writes the probe's end into the Pod's status.
func (s *schedule) reportEnd(a *agent) {
	a.reported = true
	t := &corev1.ContainerStateTerminated{ExitCode: a.exit, FinishedAt: metav1.NewTime(a.endedAt.Truncate(time.Second))}
	if a.account != nil {
		b, err := a.account.Marshal()
		if err != nil {
			s.Fail("%v", err)
		}
		t.Message = string(b)
	}
	if e := s.entryOf(a); e != nil && e.Phase.Final() {
		a.excuse = "the verdict was final before: " + e.Reason
	}
	s.Trace("the kubelet reports the end of %s", a.podKey)
	memapi.Edit(s.api, a.podKey, func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: t} })
}

// excuse records why a result may be lost: another actor destroyed it before the manager could publish it.
func (s *schedule) excuse(a *agent, why string) {
	if e := s.entryOf(a); a.excuse == "" && (e == nil || !e.Phase.Final()) {
		a.excuse = why
	}
}

// stopAt calls the keeper at an address to stop its probe.
func (s *schedule) stopAt(ip, secret, reason string) error {
	i := slices.IndexFunc(s.agents, func(a *agent) bool { return a.ip == ip })
	if i < 0 || s.nodes[s.agents[i].node] != nodeReady || !s.agents[i].running || s.agents[i].over {
		return errors.New("no answer")
	}
	a := s.agents[i]
	there := s.api.Objects[memapi.KeyFor("Secret", operatorNamespace, secret)]
	if there == nil || there.GetLabels()[sondev1.LabelUID] != string(a.capture) {
		return errors.New("no Secret, or not the keeper's")
	}
	if !s.calm && s.rand.IntN(3) == 0 {
		return errors.New("timeout")
	}
	if a.stop == "" {
		a.stop = reason
	}
	return nil
}

// recountAt calls the keeper at an address to count the files of its dead probe.
func (s *schedule) recountAt(ip string) (account.Account, error) {
	i := slices.IndexFunc(s.agents, func(a *agent) bool { return a.ip == ip })
	if i < 0 || s.nodes[s.agents[i].node] != nodeReady || s.agents[i].over || s.agents[i].filesGone || !s.calm && s.rand.IntN(3) == 0 {
		return account.Account{}, errors.New("no answer")
	}
	if s.agents[i].account == nil {
		return account.Account{}, errors.New("there is no account")
	}
	return *s.agents[i].account, nil
}

// nextEvent is when time alone makes an agent act; zero if it does not.
func (s *schedule) nextEvent(a *agent) time.Time {
	if a.over {
		return time.Time{}
	}
	now := s.clock.Now()
	var next time.Time
	for _, t := range []time.Time{a.podAt, a.podAt.Add(90 * time.Second), a.startAt, a.attachAt, a.endAt} {
		if t.After(now) {
			next = earlier(next, t)
		}
	}
	if a.ended && a.endedAt.Add(a.retain).After(now) {
		next = earlier(next, a.endedAt.Add(a.retain))
	}
	job, ok := s.api.Objects[a.jobKey].(*batchv1.Job)
	if !ok || job.UID != a.job {
		return next
	}
	if target.JobEnded(job) {
		return earlier(next, finishedAt(job).Add(time.Duration(*job.Spec.TTLSecondsAfterFinished)*time.Second))
	}
	return earlier(next, job.CreationTimestamp.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds)*time.Second))
}
