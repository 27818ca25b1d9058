package capture

import (
	"math/rand/v2"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/test/memapi"
)

// request creates a capture for a user, through the webhook.
func (s *schedule) request(name string) *captureTruth {
	ns, ok := s.api.Objects[memapi.KeyFor("Namespace", "", "shop")]
	if !ok || s.denied["shop"] || s.paused() || ns.GetLabels()[sondev1.LabelOptOut] != "" {
		return nil // the webhook refuses it
	}
	pc := newCapture()
	pc.Name = name
	if !s.calm && s.plan == nil {
		pc.Spec.Duration = []string{"10", "30", "2m"}[s.rand.IntN(3)]
		pc.Spec.RetainFor = []string{"30s", "5m", "20m"}[s.rand.IntN(3)]
		if s.rand.IntN(2) == 0 {
			pc.Spec.JobID = ""
		}
		if s.rand.IntN(4) == 0 {
			pc.Spec.FollowPods = new(false)
		}
	}
	c := &captureTruth{key: client.ObjectKeyFromObject(pc), jobs: map[types.UID]int{}, removed: map[types.UID]int{}, created: map[creator]int{}}
	claim := stamp.Claim{Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: string(ns.GetUID()), IssuedAt: s.clock.Now()}
	annotations, err := stamp.Sign(scheduleKey, pc.Namespace, pc.KindName(), pc.Spec, claim)
	if err != nil {
		s.Fail("sign: %v", err)
	}
	pc.Annotations = annotations
	if s.plan == nil && !s.calm && s.rand.IntN(15) == 0 {
		pc.Annotations, c.invalid, c.refusedAt = nil, true, 1
	}
	if err := s.api.Create(pc); err != nil {
		return nil
	}
	c.uid = pc.UID
	s.captures = append(s.captures, c)
	s.Trace("a user creates %s, duration %s, retainFor %s, uid %s", c.key, pc.Spec.Duration, pc.Spec.RetainFor, pc.UID)
	return c
}

func (s *schedule) paused() bool {
	_, ok := s.api.Objects[memapi.KeyFor("ConfigMap", operatorNamespace, pause.ConfigMapName)]
	return ok
}

// disturbances are actions of users, admins and the environment. Each reports whether it did something.
var disturbances = []struct {
	name string
	do   func(*schedule) bool
}{
	{"a Pod joins", func(s *schedule) bool { s.makePodOfWorkload(); return true }},
	{"a Pod leaves", func(s *schedule) bool { return s.removePod() != "" }},
	{"a Pod is replaced under its name", func(s *schedule) bool {
		name := s.removePod()
		if name != "" {
			s.makePodNamed(name)
		}
		return name != ""
	}},
	{"a Pod comes and goes", func(s *schedule) bool {
		key := memapi.KeyFor("Pod", "shop", s.makePodOfWorkload())
		return s.api.Delete(key, nil) == nil
	}},
	{"a Pod comes and is evicted", func(s *schedule) bool {
		key := memapi.KeyFor("Pod", "shop", s.makePodOfWorkload())
		memapi.Edit(s.api, key, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		return s.api.Objects[key] != nil
	}},
	{"the watch of Pods is interrupted for too long", func(s *schedule) bool {
		if s.leader == nil {
			return false
		}
		if s.rand.IntN(2) == 0 {
			_ = s.api.Delete(memapi.KeyFor("Pod", "shop", s.makePodOfWorkload()), nil)
		}
		s.leader.relist()
		return true
	}},
	{"a Pod ends", func(s *schedule) bool {
		key, ok := s.anyPod("shop")
		memapi.Edit(s.api, key, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		return ok
	}},
	{"the workload is deleted", func(s *schedule) bool {
		if s.rand.IntN(2) == 0 {
			return false
		}
		// From a source of its own: the seeds that once found bugs must go on as before.
		if own := rand.New(rand.NewPCG(s.seed, 200+uint64(s.events))); own.IntN(2) == 0 {
			s.removeOwners(own)
			return true
		}
		_ = s.api.Delete(memapi.KeyFor("Deployment", "shop", "web"), nil)
		_ = s.api.Delete(memapi.KeyFor("ReplicaSet", "shop", "web-rs"), nil)
		s.removePods()
		return true
	}},
	{"a user stops the capture", func(s *schedule) bool {
		c := s.anyCapture()
		if c == nil {
			return false
		}
		memapi.Edit(s.api, memapi.KeyFor("PacketCapture", c.key.Namespace, c.key.Name), func(pc *sondev1.PacketCapture) {
			if !pc.Spec.Stop {
				pc.Spec.Stop = true
				pc.Generation++
			}
		})
		return true
	}},
	{"a user deletes the capture", func(s *schedule) bool { return s.remove(s.anyCapture()) }},
	{"a user deletes the capture and creates it again", func(s *schedule) bool {
		c := s.anyCapture()
		return s.remove(c) && s.request(c.key.Name) != nil
	}},
	{"a user makes another capture", func(s *schedule) bool { return s.request("pc2") != nil }},
	{"the user loses the right", func(s *schedule) bool {
		s.denied["shop"] = true
		s.refuseAll()
		return true
	}},
	{"the namespace is closed", func(s *schedule) bool {
		memapi.Edit(s.api, memapi.KeyFor("Namespace", "", "shop"), func(ns *corev1.Namespace) { ns.Labels = map[string]string{sondev1.LabelOptOut: "true"} })
		s.refuseAll()
		return true
	}},
	{"the namespace is removed", func(s *schedule) bool {
		if s.rand.IntN(2) == 0 {
			return false
		}
		s.removeNamespace()
		if s.rand.IntN(2) == 0 {
			_ = s.api.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			s.makeWorkload()
			s.makePodOfWorkload()
			s.request("pc")
		}
		return true
	}},
	{"an admin pauses everything", func(s *schedule) bool {
		err := s.api.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: pause.ConfigMapName}, Data: map[string]string{pause.Key: "true"}})
		s.refuseAll()
		if s.leader != nil {
			for _, k := range s.captureKeys() { // by the watch of the ConfigMap
				s.leader.queue.Add(k)
			}
		}
		return err == nil
	}},
	{"an admin ends the pause", func(s *schedule) bool {
		ns, ok := s.api.Objects[memapi.KeyFor("Namespace", "", "shop")]
		for _, c := range s.captures { // captures that no pass has ended yet continue
			if ok && !c.invalid && !s.denied["shop"] && ns.GetLabels()[sondev1.LabelOptOut] == "" && s.live(c) != nil {
				c.refusedAt = 0
			}
		}
		return s.api.Delete(memapi.KeyFor("ConfigMap", operatorNamespace, pause.ConfigMapName), nil) == nil
	}},
	{"a node does not report any more", func(s *schedule) bool { return s.setNode(nodeSilent, corev1.ConditionUnknown) }},
	{"a node is back", func(s *schedule) bool { return s.setNode(nodeReady, corev1.ConditionTrue) }},
	{"a node is removed", func(s *schedule) bool {
		if s.rand.IntN(2) == 0 || s.nodes["node-b"] == nodeGone {
			return false
		}
		s.nodes["node-b"] = nodeGone
		_ = s.api.Delete(memapi.KeyFor("Node", "", "node-b"), nil)
		for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
			if p.Namespace == "shop" && p.Spec.NodeName == "node-b" {
				_ = s.api.Delete(s.api.KeyOf(p), nil)
			}
		}
		return true
	}},
	{"an agent's Pod is evicted", func(s *schedule) bool {
		a := s.anyAgent()
		if a == nil || s.nodes[a.node] != nodeReady {
			return false
		}
		pod, ok := s.api.Objects[a.podKey].(*corev1.Pod)
		if !ok || podOver(pod) {
			return false
		}
		if a.running && !a.ended {
			s.end(a, sondev1.ReasonDrained, false, exitKilledBySignal)
		}
		if a.running && !a.reported {
			s.reportEnd(a)
		}
		memapi.Edit(s.api, a.podKey, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node was low on disk"
		})
		a.ended, a.filesGone = true, true
		return true
	}},
	{"an agent's Pod is deleted, as by a drain", func(s *schedule) bool {
		a := s.anyAgent()
		pod, ok := s.podOf(a)
		if !ok {
			return false
		}
		s.excuse(a, "its Pod was deleted")
		return s.terminate(a, pod)
	}},
	{"an admin deletes a Job", func(s *schedule) bool {
		a := s.anyAgent()
		if a == nil || s.api.Objects[a.jobKey] == nil || s.api.Objects[a.jobKey].GetUID() != a.job {
			return false
		}
		s.excuse(a, "its Job was deleted")
		if c := s.truth(a.capture); c != nil {
			c.removed[a.target]++
		}
		return s.api.Delete(a.jobKey, nil) == nil
	}},
	{"other objects hold the names that the manager wants", func(s *schedule) bool {
		_ = s.api.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "shop-web"}})
		return s.api.Create(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "web-1-qwer"}}) == nil
	}},
	{"nothing happens for minutes", func(s *schedule) bool {
		s.clock.Step(time.Duration(s.rand.IntN(300)) * time.Second)
		if s.leader != nil {
			s.leader.catchUp(s.clock.Now().Add(-mostLag))
		}
		return true
	}},
}

func (s *schedule) stepDisturbance() {
	if s.disturbances == 0 {
		return
	}
	m := disturbances[s.rand.IntN(len(disturbances))]
	for s.only != "" && m.name != s.only {
		m = disturbances[s.rand.IntN(len(disturbances))]
	}
	if m.name == "nothing happens for minutes" && s.Depth > 0 {
		return // a pass does not take that long
	}
	s.Trace("%s?", m.name)
	if m.do(s) {
		s.disturbances--
		s.events++
		s.Trace("%s", m.name)
	}
}

func (s *schedule) anyPod(namespace string) (memapi.Key, bool) {
	var keys []memapi.Key
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		if p.Namespace == namespace {
			keys = append(keys, s.api.KeyOf(p))
		}
	}
	if len(keys) == 0 {
		return memapi.Key{}, false
	}
	return keys[s.rand.IntN(len(keys))], true
}

// removePod removes a Pod of the workload and returns its name.
func (s *schedule) removePod() string {
	key, ok := s.anyPod("shop")
	if !ok || s.api.Delete(key, nil) != nil {
		return ""
	}
	return key.Name
}

// removePods removes all Pods of the workload.
func (s *schedule) removePods() {
	for {
		if s.removePod() == "" {
			return
		}
	}
}

// removeOwners removes the ReplicaSet, and sometimes the Deployment, while their Pods keep their grace periods.
func (s *schedule) removeOwners(own *rand.Rand) {
	d, set := memapi.KeyFor("Deployment", "shop", "web"), memapi.KeyFor("ReplicaSet", "shop", "web-rs")
	if own.IntN(2) == 0 { // a Pod that no pass has found
		s.makePodOfWorkload()
	}
	_ = s.api.Delete(set, nil)
	switch own.IntN(3) {
	case 0:
		_ = s.api.Delete(d, nil)
	case 1: // as a user who deletes a ReplicaSet: its Deployment makes it again, under its name
		if there := s.api.Objects[d]; there != nil {
			_ = s.api.Create(replicaSetOf(there.GetUID()))
		}
	}
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		if p.Namespace != "shop" || p.DeletionTimestamp != nil {
			continue
		}
		deadline := metav1.NewTime(s.clock.Now().Add(time.Duration(own.IntN(60)) * time.Second).Truncate(time.Second))
		memapi.Edit(s.api, s.api.KeyOf(p), func(p *corev1.Pod) { p.DeletionTimestamp = &deadline })
		s.leaving = append(s.leaving, leaving{s.api.KeyOf(p), p.UID, deadline.Time})
	}
}

// leaving is a Pod of the target that its node ends when its grace period has passed.
type leaving struct {
	key      memapi.Key
	uid      types.UID
	deadline time.Time
}

// endLeaving plays the kubelets of the Pods whose grace period has passed. It reports whether one has.
func (s *schedule) endLeaving() bool {
	before := len(s.leaving)
	s.leaving = slices.DeleteFunc(s.leaving, func(l leaving) bool {
		if s.clock.Now().Before(l.deadline) {
			return false
		}
		_ = s.api.Delete(l.key, &l.uid)
		return true
	})
	return len(s.leaving) < before
}

func (s *schedule) anyCapture() *captureTruth {
	var there []*captureTruth
	for _, c := range s.captures {
		if s.live(c) != nil {
			there = append(there, c)
		}
	}
	if len(there) == 0 {
		return nil
	}
	return there[s.rand.IntN(len(there))]
}

func (s *schedule) anyAgent() *agent {
	if len(s.agents) == 0 {
		return nil
	}
	return s.agents[s.rand.IntN(len(s.agents))]
}

func (s *schedule) podOf(a *agent) (*corev1.Pod, bool) {
	if a == nil {
		return nil, false
	}
	pod, ok := s.api.Objects[a.podKey].(*corev1.Pod)
	return pod, ok
}

func (s *schedule) remove(c *captureTruth) bool {
	if c == nil {
		return false
	}
	c.gone = true
	return s.api.Delete(memapi.KeyFor("PacketCapture", c.key.Namespace, c.key.Name), nil) == nil
}

// refuseAll revokes all current captures: from now on the manager must create nothing for them.
func (s *schedule) refuseAll() {
	for _, c := range s.captures {
		c.cutOff = true
		if c.refusedAt == 0 {
			c.refusedAt = s.Steps
		}
	}
}

func (s *schedule) removeNamespace() {
	s.refuseAll()
	for _, c := range s.captures {
		s.remove(c)
	}
	s.removePods()
	for _, k := range []memapi.Key{memapi.KeyFor("Deployment", "shop", "web"), memapi.KeyFor("ReplicaSet", "shop", "web-rs"), memapi.KeyFor("Namespace", "", "shop")} {
		_ = s.api.Delete(k, nil)
	}
}

func (s *schedule) setNode(state nodeState, ready corev1.ConditionStatus) bool {
	name := []string{"node-a", "node-b"}[s.rand.IntN(2)]
	if s.nodes[name] == nodeGone || s.nodes[name] == state {
		return false
	}
	s.nodes[name] = state
	memapi.Edit(s.api, memapi.KeyFor("Node", "", name), func(n *corev1.Node) { n.Status.Conditions[0].Status = ready })
	return true
}
