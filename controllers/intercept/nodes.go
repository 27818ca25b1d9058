package intercept

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/operator/target"
)

const (
	// nodeAge is how long a reading of a node counts for new carriers.
	nodeAge = time.Minute
	// maxRereads bounds how many nodes that did not exist a pass reads again.
	maxRereads = 10
)

// nodeReading says whether a node existed.
type nodeReading struct {
	exists bool
	at     time.Time
}

// recent reports whether the reading is no older than nodeAge.
func (n nodeReading) recent(now time.Time) bool { return now.Sub(n.at) < nodeAge }

// observeNodes reads whether nodes exist. Those that cannot be read get no carrier in this pass.
func (r *Reconciler) observeNodes(ctx context.Context, o *observation, names []string) {
	if r.memory.nodes == nil {
		r.memory.nodes = map[string]nodeReading{}
	}
	o.nodes = r.memory.nodes
	for _, name := range names {
		exists, err := target.NodeExists(ctx, r.Live, name)
		if err != nil {
			o.failed = errors.Join(o.failed, err)
			continue
		}
		o.nodes[name] = nodeReading{exists, r.Clock.Now()}
	}
}

// forgetNodes keeps the readings of nodes that a target's Pod names.
func (r *Reconciler) forgetNodes(targets map[workload]target.Workload) {
	if len(r.memory.nodes) == 0 {
		return
	}
	kept := map[string]nodeReading{}
	for _, t := range targets {
		for _, pod := range t.Pods {
			if n, ok := r.memory.nodes[pod.Node()]; ok {
				kept[pod.Node()] = n
			}
		}
	}
	r.memory.nodes = kept
}

// missingNodes returns the nodes that did not exist, and are to be read again: those that were read first.
func (o *observation) missingNodes(now time.Time) []string {
	var names []string
	for name, n := range o.nodes {
		if !n.exists && !n.recent(now) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(o.nodes[a].at.Compare(o.nodes[b].at), cmp.Compare(a, b)) })
	return names[:min(len(names), maxRereads)]
}
