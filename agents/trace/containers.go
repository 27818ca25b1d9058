package trace

import (
	"math"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// decision says whether the events of a cgroup are written.
type decision uint8

const (
	// undecided: the kubelet's name of the container is not known. The container has just started, or it is the sandbox.
	undecided decision = iota
	included
	excluded
)

const (
	maxDecided   = 1 << 14 // cgroups
	maxUndecided = 1 << 10
	// The pause before undecided cgroups are checked again grows from minRecheck to maxRecheck.
	minRecheck = uint64(20 * time.Millisecond)
	maxRecheck = uint64(time.Second)
	// processesChecked is how many processes of each cgroup are asked for its path at a time: some may have ended.
	processesChecked = 8
)

// selection says which containers are recorded.
type selection struct {
	names   []string // empty means all
	decided map[uint64]decision
	// undecided has the cgroups with events. The value is false if the cgroup has no process, so that nothing more can
	// be learned.
	undecided map[uint64]bool
	// active says that an undecided cgroup had an event since the last check. A sandbox has none for most of its life.
	active bool
	// checked is the time of the last check, pause the time until the next one.
	checked, pause uint64
}

func newSelection(names []string) selection {
	return selection{names: names, decided: map[uint64]decision{}, undecided: map[uint64]bool{}}
}

// decisionOf returns the decision about a cgroup that has an event.
func (s *selection) decisionOf(cgroup uint64) decision {
	if len(s.names) == 0 {
		return included
	}
	if d, ok := s.decided[cgroup]; ok {
		return d
	}
	if _, known := s.undecided[cgroup]; !known {
		s.pause = minRecheck
	}
	s.active = true
	if len(s.undecided) < maxUndecided {
		s.undecided[cgroup] = true
	}
	return undecided
}

// selects says whether a container's events are written.
func (s *selection) selects(name string) bool { return name != "" && slices.Contains(s.names, name) }

// decide stores the decision about a cgroup by the name of its container, which may be empty.
func (s *selection) decide(cgroup uint64, name string) decision {
	if len(s.decided) >= maxDecided {
		clear(s.decided) // most are of containers that are gone
	}
	d := excluded
	if s.selects(name) {
		d = included
	}
	s.decided[cgroup] = d
	delete(s.undecided, cgroup)
	return d
}

// resolveAndRelease decides about cgroups and writes the events that waited for it. An error is ignored: the events are
// then written when they have waited long enough.
func (t *Trace) resolveAndRelease(until uint64) {
	s := &t.containers
	if len(s.undecided) == 0 && len(t.held.queue) == 0 {
		return
	}
	waiting := s.active || len(t.held.queue) > 0
	if now := kernel.BootTime(); len(s.undecided) > 0 && waiting && (now-s.checked >= s.pause || until == math.MaxUint64) {
		s.checked, s.pause = now, min(2*s.pause, maxRecheck)
		_ = t.resolve()
	}
	t.release(until)
	for cgroup, hasProcess := range s.undecided {
		if !hasProcess {
			delete(s.undecided, cgroup) // its next event adds it again
		}
	}
}

// selectProcesses decides about the cgroups of processes before anything is recorded, and returns the processes that may be
// recorded.
func (t *Trace) selectProcesses(found []process.Process) ([]process.Process, error) {
	if len(t.containers.names) == 0 {
		return found, nil
	}
	tasks, err := t.program.Tasks()
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if task, ok := tasks[uint32(p.PID)]; ok {
			t.containers.decisionOf(task.Cgroup)
		}
	}
	err = t.resolve()
	return slices.DeleteFunc(found, func(p process.Process) bool {
		return t.containers.decided[tasks[uint32(p.PID)].Cgroup] == excluded
	}), err
}

// resolve decides about undecided cgroups by the container of one of their processes. An answer counts if the process was
// in the cgroup before and after it: a runtime moves processes.
func (t *Trace) resolve() error {
	t.containers.active = false
	if err := t.decoder.ReadContainers(); err != nil {
		return err
	}
	before, err := t.program.Tasks()
	if err != nil {
		return err
	}
	type answer struct {
		pid  uint32
		name string
	}
	answers, asked := map[uint64]answer{}, map[uint64]int{}
	for pid, p := range before {
		_, wanted := t.containers.undecided[p.Cgroup]
		if _, known := answers[p.Cgroup]; !wanted || known || asked[p.Cgroup] >= processesChecked {
			continue
		}
		asked[p.Cgroup]++
		if name, sure := t.decoder.ContainerOf(pid); sure {
			answers[p.Cgroup] = answer{pid, name}
		}
	}
	after, err := t.program.Tasks()
	if err != nil {
		return err
	}
	for cgroup := range t.containers.undecided {
		t.containers.undecided[cgroup] = asked[cgroup] > 0
	}
	for cgroup, a := range answers {
		if now, ok := after[a.pid]; ok && now.Cgroup == cgroup {
			t.decide(cgroup, a.name)
		}
	}
	return nil
}

// decide stores the decision about a cgroup by the name of its container. The kernel no longer records an excluded one.
func (t *Trace) decide(cgroup uint64, name string) {
	if t.containers.decide(cgroup, name) == included {
		t.decoder.SetContainer(cgroup, name)
		return
	}
	// If the kernel's table is full, write leaves out the cgroup's events.
	_ = t.program.ExcludeCgroup(cgroup)
	t.decoder.ForgetCgroup(cgroup)
}
