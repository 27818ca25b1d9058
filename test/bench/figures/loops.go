package figures

import "github.com/sonde-operator/sonde/agents/trace/decode"

// Loop is a sequence of system calls that a process repeats while a tracer is measured.
type Loop struct {
	Name  string
	Label string
	// calls is the number of calls in one turn. Asked are the calls that every tracer records, which are those in
	// Group.
	calls int
	Asked []string
	Group decode.Group
	// Own is the number of events in Group that a worker makes besides its loop: reading an order and answering it.
	Own int
	// Times is how many turns it makes for each turn of the slowest loop.
	Times int
}

// Names of loops.
const (
	LoopOpen = "trace-open"
	LoopRead = "trace-read"
)

// Loops in the order of a round.
var Loops = []Loop{
	{
		Name: LoopOpen, Label: "openat, read, close", calls: 3, Asked: []string{"openat", "close"}, Group: decode.GroupFile, Times: 1,
	},
	{
		Name: LoopRead, Label: "read of a byte", calls: 1, Asked: []string{"read"}, Group: decode.GroupIO, Own: 2, Times: 4,
	},
}

// LoopByName returns the loop, or nil if there is none of that name.
func LoopByName(name string) *Loop {
	for i := range Loops {
		if Loops[i].Name == name {
			return &Loops[i]
		}
	}
	return nil
}
