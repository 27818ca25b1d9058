package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// waits are timeouts and intervals; tests shorten them.
type waits struct {
	config  time.Duration // for the kubelet to mount this capture's configuration
	process time.Duration // for the target's first process, and again for it to leave the node's network namespace
	retry   time.Duration // between two attempts
	stop    time.Duration // between two reads of the stop file
	report  time.Duration // between two reports
}

var defaultWaits = waits{
	// The kubelet refreshes mounted ConfigMaps about once a minute.
	config: 2 * time.Minute,
	// A runtime moves a process into the Pod's cgroup first, and into its namespaces a moment later, or much later on a node
	// that is short of memory.
	process: time.Minute,
	retry:   200 * time.Millisecond,
	stop:    400 * time.Millisecond,
	report:  400 * time.Millisecond,
}

// target is the Pod on its node.
type target interface {
	// open returns the Pod's network namespace, process.ErrNoProcess or process.ErrOwnNetNS.
	open() (*process.NetNS, error)
	// node returns the inode of the node's own network namespace.
	node() (uint64, error)
	// gone returns when no process of the Pod is left in the namespace, with errNewSandbox if the Pod lives on in another one, or
	// with the error of ctx.
	gone(ctx context.Context, inode uint64) error
}

// gateGrace is how long a gated Pod may be without a process. After its gate the next container's image may have to be
// pulled, and not every runtime keeps a process for the sandbox. The manager stops the probe of a deleted Pod earlier.
const gateGrace = 5 * time.Minute

// nodeTarget is the target on this node.
type nodeTarget struct {
	uid         string
	hostNetwork bool
	finder      process.Finder
	grace       time.Duration // process.DefaultGrace if zero
}

func (t nodeTarget) open() (*process.NetNS, error) { return t.finder.OpenNetNS(t.uid, t.hostNetwork) }

func (t nodeTarget) node() (uint64, error) { return t.finder.HostNetNS() }

func (t nodeTarget) gone(ctx context.Context, inode uint64) error {
	reason, err := (&process.Watcher{Finder: t.finder, UID: t.uid, NetNS: inode, Grace: t.grace}).Wait(ctx)
	if err == nil && reason == process.GoneNewSandbox {
		return errNewSandbox
	}
	return err
}

// errNewSandbox ends a recording that misses what its Pod does from now on.
var errNewSandbox = errors.New("the Pod runs on in a new sandbox, with another network, which this capture does not have: create another capture")

// errNodesNetwork: capturing there would record all traffic of the node in the name of one Pod.
var errNodesNetwork = errors.New("the Pod's network namespace is the node's: " +
	"only a hostNetwork Pod may be captured there, by someone who may capture on nodes")

func isGone(err error) bool { return errors.Is(err, process.ErrNoProcess) }

// attach waits for the target and starts the work. It returns the inode of the target's network namespace.
func (p *Probe) attach(ctx context.Context, w work) (session, uint64, error) {
	ns, err := p.awaitNetNS(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer ns.Close()
	r, err := w.attach(ns)
	if err != nil {
		return nil, 0, fmt.Errorf("attach to pod %s: %w", p.options.PodName, err)
	}
	return r, ns.Inode, nil
}

// awaitNetNS returns the target's network namespace once it has one.
func (p *Probe) awaitNetNS(ctx context.Context) (*process.NetNS, error) {
	own, err := p.target.node()
	if err != nil {
		return nil, err
	}
	since, started := time.Now(), false
	for {
		ns, err := p.target.open()
		switch {
		case err == nil && (ns.Inode != own || p.options.HostNetwork):
			return ns, nil
		case err == nil:
			_ = ns.Close() // opened for reading
			err = errNodesNetwork
			if !started {
				since, started = time.Now(), true
				p.report.waiting("waiting for the Pod's first process to leave the node's network namespace")
			}
		case !isGone(err) && !errors.Is(err, process.ErrOwnNetNS):
			return nil, err
		}
		if time.Since(since) >= p.waits.process {
			return nil, fmt.Errorf("wait %v for pod %s: %w", p.waits.process, p.options.PodName, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(p.waits.retry):
		}
	}
}
