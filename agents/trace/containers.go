package trace

import (
	"math"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// standing of a cgroup: whether its events are written.
type standing uint8

const (
	// unsettled: nobody knows yet whose it is. A runtime prepares a container in its cgroup, and only when that is done do
	// the mounts there tell the container's name.
	unsettled standing = iota
	wanted
	unwanted
)

// Bounds of what is held back until it is known whose it is. What is beyond them is written: nothing is left out that may
// be asked for.
const (
	holdFor      = uint64(5 * time.Second)
	holdBytes    = 8 << 20
	maxUnsettled = 1 << 10 // cgroups
	// lookAgain is how soon unsettled cgroups are looked at again, and lookRarely how soon those of which nothing was learnt
	// for long; lookAt is at how many processes of each.
	lookAgain  = uint64(20 * time.Millisecond)
	lookRarely = uint64(time.Second)
	lookAt     = 8
)

// selection is which containers are recorded, where not all are.
type selection struct {
	names []string // empty is all
	known map[uint64]standing
	// open are the cgroups that are unsettled; false are those without a process, of which nothing more can be learnt.
	open map[uint64]bool
	// looked is when they were looked at last, and pause until they are again.
	looked, pause uint64
	// queue holds events, in their order, from the first of an unsettled cgroup on.
	queue []heldEvent
	bytes int
}

// heldEvent waits for its cgroup, or behind one that does.
type heldEvent struct {
	cgroup, time uint64
	to           *stream
	lines        []byte
}

func newSelection(names []string) selection {
	return selection{names: names, known: map[uint64]standing{}, open: map[uint64]bool{}}
}

// of a cgroup that an event came from.
func (s *selection) of(cgroup uint64) standing {
	if len(s.names) == 0 {
		return wanted
	}
	known, ok := s.known[cgroup]
	if ok {
		return known
	}
	if _, open := s.open[cgroup]; !open {
		s.pause = lookAgain
	}
	if len(s.open) < maxUnsettled {
		s.open[cgroup] = true
	}
	return unsettled
}

func (s *selection) decide(cgroup uint64, name string) standing {
	if len(s.known) >= maxProcesses {
		clear(s.known) // most are of containers that are gone
	}
	decided := unwanted
	if name != "" && slices.Contains(s.names, name) {
		decided = wanted
	}
	s.known[cgroup] = decided
	delete(s.open, cgroup)
	return decided
}

// hold keeps an event back.
func (t *Trace) hold(e *event, to *stream, lines []byte) {
	s := &t.only
	s.queue = append(s.queue, heldEvent{cgroup: e.record.Cgroup, time: e.record.Time, to: to, lines: lines})
	if s.bytes += len(lines); s.bytes > holdBytes {
		t.release(e.record.Time)
	}
}

// release writes what was held back, up to the first event that still waits at a time.
func (t *Trace) release(now uint64) {
	s, n := &t.only, 0
	for ; n < len(s.queue); n++ {
		h := &s.queue[n]
		known := s.known[h.cgroup]
		if known == unsettled && s.open[h.cgroup] && s.bytes <= holdBytes && now < h.time+holdFor {
			break
		}
		s.bytes -= len(h.lines)
		if known != unwanted {
			t.emit(h)
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
}

// sortOut looks whose the unsettled cgroups are, and writes what waited for that. That nobody can tell is no error: then
// it is written.
func (t *Trace) sortOut(until uint64) {
	s := &t.only
	if len(s.open) == 0 && len(s.queue) == 0 {
		return
	}
	if now := bootTime(); len(s.open) > 0 && (now-s.looked >= s.pause || until == math.MaxUint64) {
		s.looked, s.pause = now, min(2*s.pause, lookRarely)
		_ = t.settle()
	}
	t.release(until)
	for cgroup, there := range s.open {
		if !there {
			delete(s.open, cgroup) // it opens again with its next event
		}
	}
}

// settleAll finds out whose the cgroups of processes are before anything is recorded, and returns those that may be
// recorded.
func (t *Trace) settleAll(found []process.Process) ([]process.Process, error) {
	if len(t.only.names) == 0 {
		return found, nil
	}
	seen, err := seenBy(t.program.objects.Programs[traceProgSondeTasks])
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if s, ok := seen[uint32(p.PID)]; ok {
			t.only.of(s.Cgroup)
		}
	}
	err = t.settle()
	return slices.DeleteFunc(found, func(p process.Process) bool { return t.only.known[seen[uint32(p.PID)].Cgroup] == unwanted }), err
}

// settle asks the processes of each unsettled cgroup whose it is. An answer counts if its process was in the cgroup before
// and after: a runtime moves them.
func (t *Trace) settle() error {
	tasks := t.program.objects.Programs[traceProgSondeTasks]
	before, err := seenBy(tasks)
	if err != nil {
		return err
	}
	type answer struct {
		pid  uint32
		name string
	}
	answers, asked := map[uint64]answer{}, map[uint64]int{}
	for pid, p := range before {
		if _, open := t.only.open[p.Cgroup]; !open || asked[p.Cgroup] >= lookAt || answers[p.Cgroup].pid != 0 {
			continue
		}
		asked[p.Cgroup]++
		if name, sure := t.resolver.whose(pid); sure {
			answers[p.Cgroup] = answer{pid, name}
		}
	}
	after, err := seenBy(tasks)
	if err != nil {
		return err
	}
	for cgroup := range t.only.open {
		t.only.open[cgroup] = asked[cgroup] > 0
	}
	for cgroup, a := range answers {
		if now, ok := after[a.pid]; ok && now.Cgroup == cgroup {
			t.settled(cgroup, a.name)
		}
	}
	return nil
}

// settled: a cgroup is a container's by its name, or no container's. What nobody asked for the kernel does not tell any more.
func (t *Trace) settled(cgroup uint64, name string) {
	if t.only.decide(cgroup, name) == unwanted {
		// With too many of them it is left out here alone.
		_ = t.program.objects.Maps[traceMapLeftOut].Update(cgroup, uint8(1), ebpf.UpdateAny)
		t.resolver.forget(cgroup)
		return
	}
	if len(t.resolver.containers) < maxProcesses {
		t.resolver.containers[cgroup] = name
	}
}
