package opener

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// target is the Pod on its node.
type target interface {
	// open returns the Pod's network namespace, process.ErrNoProcess or process.ErrOwnNetNS.
	open() (*process.NetNS, error)
	// node returns the inode of the node's own network namespace.
	node() (uint64, error)
	// gone returns nil when the Pod's sandbox with this network namespace has ended, or the error of ctx.
	gone(ctx context.Context, inode uint64) error
}

// nodeTarget is the target on this node.
type nodeTarget struct {
	uid    string
	finder process.Finder
}

func (t nodeTarget) open() (*process.NetNS, error) { return t.finder.OpenNetNS(t.uid, false) }

func (t nodeTarget) node() (uint64, error) { return t.finder.HostNetNS() }

func (t nodeTarget) gone(ctx context.Context, inode uint64) error {
	_, err := (&process.Watcher{Finder: t.finder, UID: t.uid, NetNS: inode}).Wait(ctx)
	return err
}

var (
	// errHostNetwork: steering there would take connections of the node and of all its hostNetwork Pods.
	errHostNetwork = errors.New("the Pod uses its node's network (hostNetwork): a port there belongs to the whole node and cannot be intercepted")
	// errTargetGone says that the Pod has ended.
	errTargetGone = errors.New("the Pod's sandbox has ended")
)

// awaitNetNS returns the Pod's network namespace once it has one.
func (o *Opener) awaitNetNS(ctx context.Context) (*process.NetNS, error) {
	node, err := o.target.node()
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(o.waits.process)
	defer timeout.Stop()
	for {
		ns, err := o.target.open()
		switch {
		case err == nil && ns.Inode != node:
			return ns, nil
		case err == nil: // also while a runtime starts the Pod's first process
			err = errors.Join(errHostNetwork, ns.Close())
		case !errors.Is(err, process.ErrNoProcess) && !errors.Is(err, process.ErrOwnNetNS):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timeout.C:
			return nil, fmt.Errorf("wait %v for pod %s: %w", o.waits.process, o.options.PodName, err)
		case <-time.After(o.waits.retry):
		}
	}
}
