package decode

import (
	"time"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// The pause before a guessed name is compared with the kubelet's again grows from minGuess to maxGuess. The kubelet makes its link to a
// container's log some milliseconds after the start. Some containers never get a link whose name has the whole ID.
const (
	minGuess = uint64(100 * time.Millisecond)
	maxGuess = uint64(time.Minute)
)

// guess says whether the name of a process's container was taken from its mounts, which the process may have changed.
type guess struct {
	made bool
	// due is when to look for the kubelet's name again, in nanoseconds since boot, and pause the time until the next look.
	due, pause uint64
}

func (g *guess) set(sure bool) {
	*g = guess{}
	if !sure {
		g.made, g.pause, g.due = true, minGuess, kernel.BootTime()+minGuess
	}
}

// container names the container that a cgroup belongs to. The Pod's sandbox has no name. sure says that the kubelet has given the name,
// or that there is none.
func (r *resolver) container(pid uint32, cgroup uint64) (name string, sure bool) {
	if name := r.containers[cgroup]; name != "" {
		return name, true
	}
	if r.isTargets(pid) {
		name, sure = r.containerOf(pid, cgroup)
	}
	// Another process of the cgroup may still have a name if this one has none.
	known := r.guesses
	if sure {
		known = r.containers
	} else if name == "" {
		name = r.guesses[cgroup]
	}
	if name != "" && len(known) < maxProcesses {
		known[cgroup] = name
	}
	return name, sure
}

// checkGuess replaces the guessed name of a process's container by the kubelet's, if that is known by now.
func (r *resolver) checkGuess(pid uint32, p *processState) {
	if r.now < p.guess.due || p.cgroup == 0 { // its cgroup is known from its first event on: names are by cgroup
		return
	}
	if name, sure := r.container(pid, p.cgroup); sure {
		p.container, p.guess = name, guess{}
		return
	}
	p.guess.pause = min(2*p.guess.pause, maxGuess)
	p.guess.due = r.now + p.guess.pause
}

// retryContainer finds the container's name if it was unknown. A runtime makes the mount with the name after the first
// process has entered the cgroup, and before that process starts the container's program.
func (r *resolver) retryContainer(p *processState, pid uint32) {
	if p.container == "" && p.cgroup != 0 {
		name, sure := r.container(pid, p.cgroup)
		p.container = name
		p.guess.set(sure)
	}
}

// readNames reads the names of the node's containers.
func (r *resolver) readNames() error {
	r.namesRead = kernel.BootTime()
	names, err := r.finder.ContainerNames()
	if err == nil {
		r.kubelet = names
	}
	return err
}

// containerOf finds the name of a process's container; empty if unknown. Where the kubelet's name is not known yet, it is the one that
// was guessed for the cgroup before. Otherwise it is taken from the process's mounts, which the process may have changed.
func (r *resolver) containerOf(pid uint32, cgroup uint64) (name string, sure bool) {
	if name, sure = r.containerForSure(pid); sure {
		return name, true
	}
	if kernel.BootTime()-r.namesRead >= minGuess {
		_ = r.readNames() // after an error the old names stay
		if name, sure = r.containerForSure(pid); sure {
			return name, true
		}
	}
	if name = r.guesses[cgroup]; name != "" {
		return name, false
	}
	return r.mountedName(pid), false
}
