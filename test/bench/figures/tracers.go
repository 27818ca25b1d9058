package figures

// Tracer records system calls. Each one is a row in the tables.
type Tracer struct {
	Name  string
	Label string
	// Slow divides the number of turns, so that a slow tracer does not take much longer than a fast one.
	Slow int
	// Exact says that it counts every event: Written and Lost add up to the calls of the loop.
	Exact bool
	// Bystander says that the cost to a process that is not traced is measured too.
	Bystander bool
	// Loop, if not empty, is the only loop with which it is measured.
	Loop string
}

// Names of tracers.
const (
	TracerBinary = "sonde-binary"
	TracerSonde  = "sonde"
	TracerTimed  = "sonde-timed"
	TracerMain   = "bpftrace" // the peer in the goals
	TracerOpens  = "bpftrace-openat"
	TracerStrace = "strace"
)

// Tracers in the order of a round.
var Tracers = []Tracer{
	{Name: TracerBinary, Label: "Sonde, binary", Slow: 1, Exact: true},
	{Name: TracerSonde, Label: "Sonde, NDJSON", Slow: 1, Exact: true, Bystander: true},
	{Name: TracerTimed, Label: "Sonde, NDJSON with durations", Slow: 1, Exact: true, Bystander: true},
	{Name: TracerMain, Label: "bpftrace printf", Slow: 20, Bystander: true},
	{Name: TracerOpens, Label: "bpftrace printf, openat alone", Slow: 20, Loop: LoopOpen},
	{Name: TracerStrace, Label: "strace --seccomp-bpf", Slow: 50},
}

// TracerByName returns the tracer, or nil if there is none of that name.
func TracerByName(name string) *Tracer {
	for i := range Tracers {
		if Tracers[i].Name == name {
			return &Tracers[i]
		}
	}
	return nil
}

// Calls returns how many calls of a loop's turn a tracer records.
func (t *Tracer) Calls(l *Loop) int {
	if t.Name == TracerOpens {
		return 1
	}
	return len(l.Asked)
}
