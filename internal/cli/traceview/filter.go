package traceview

import (
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Filter says which events of a trace to show. An empty field excludes nothing.
type Filter struct {
	// Groups and Calls by name; an event has to be in one of them. A call's name includes the operation of an io_uring that does
	// the same.
	Groups, Calls []string
	// Pods by name; one that ends with * selects all names that begin so.
	Pods []string
	// Containers by name, and Comms, the names of threads at the time of the event.
	Containers, Comms []string
	// MinLatency excludes shorter calls. Events without a duration stay, as with spec.minLatency of a Trace.
	MinLatency time.Duration
	// Failed excludes calls that did not fail.
	Failed bool
}

// Keeps reports whether an event of the Pod is to be shown.
func (f *Filter) Keeps(pod string, r *tracefmt.Record) bool {
	switch {
	case len(f.Groups)+len(f.Calls) > 0 && !slices.Contains(f.Groups, r.Group) && !f.hasCall(r.Call),
		len(f.Pods) > 0 && !f.hasPod(pod),
		len(f.Containers) > 0 && !slices.Contains(f.Containers, r.Container),
		len(f.Comms) > 0 && !slices.Contains(f.Comms, string(r.Comm)),
		r.Took >= 0 && r.Took < f.MinLatency,
		f.Failed && !Failed(r):
		return false
	}
	return true
}

func (f *Filter) hasCall(name string) bool {
	return slices.Contains(f.Calls, name) || slices.Contains(f.Calls, strings.TrimPrefix(name, uringPrefix)) || slices.Contains(f.Calls, sameCall(name))
}

// uringPrefix begins the name of an io_uring's operation.
const uringPrefix = "io_uring_"

// sameCall returns the system call that does the same as an operation of an io_uring, and the name of any other call.
func sameCall(name string) string {
	op, ok := strings.CutPrefix(name, uringPrefix)
	if !ok {
		return name
	}
	for _, variant := range []string{"_fixed", "_multishot", "_zc"} {
		op = strings.TrimSuffix(op, variant)
	}
	switch op {
	case "send":
		return "sendto"
	case "recv":
		return "recvfrom"
	case "accept":
		return "accept4"
	}
	return op
}

func (f *Filter) hasPod(name string) bool {
	return slices.ContainsFunc(f.Pods, func(want string) bool {
		prefix, several := strings.CutSuffix(want, "*")
		return name == want || several && strings.HasPrefix(name, prefix)
	})
}
