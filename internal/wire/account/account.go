// Package account has the bounded summary of one Pod's result. The probe writes it to its termination message and its
// progress file, the keeper streams it, and the manager copies it into the status. It carries a version; a reader of
// version N reads N-1.
package account

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Version is the highest version of the format. Marshal writes the lowest one that can hold the account, for older readers.
const Version = 4

// Bounds of an account, so that it fits a termination message (4096 bytes, kubelet's limit).
const (
	MaxBytes      = 4096
	MaxInterfaces = 12
	MaxFiles      = 16
	// MaxFileName is the longest name of one of several files: MaxFiles such names must fit.
	MaxFileName = 100
	MaxText     = 256
	MaxEngine   = 32
	MaxID       = 128
	MaxLost     = 8
	MaxReasons  = 16
)

// State of a probe.
type State string

// States, in their order.
const (
	StateStarting  State = "starting"  // looking for the target, opening sockets
	StateCapturing State = "capturing" // attached: every packet from now on is counted
	StateDone      State = "done"      // ended; the counts are final
)

// Version 1 has no ring of files, version 2 no events of a trace, and version 3 no processes.
const (
	firstVersion  = 1
	firstMaxFiles = 8
	ringVersion   = 2
	traceVersion  = 3
)

// Account of one Pod's capture. For packets, Seen = Packets + Overwritten + DroppedKernel + DroppedRing + DroppedWriter. For a
// trace, Seen = Events + the sum of Lost.
type Account struct {
	Version int   `json:"v"`
	State   State `json:"state"`
	// Engine that records, when it is attached; EngineMessage says why it is not the preferred one.
	Engine        string `json:"engine,omitempty"`
	EngineMessage string `json:"engineMessage,omitempty"`
	// Reason of the end, one of the api's Reason constants. Before, it is empty, or ReasonInterfaceNotFound while an interface
	// that the capture names is missing.
	Reason string `json:"reason,omitempty"`
	// Complete says that the files are complete, and that the counts are final and add up.
	Complete bool `json:"complete,omitempty"`
	// Asked says that the keeper ended the recording. Reason is then what the keeper gave.
	Asked   bool      `json:"asked,omitempty"`
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started,omitzero"` // when the probe was attached
	Ended   time.Time `json:"ended,omitzero"`
	// Counts over all interfaces.
	Counts
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Events of a trace in its files, and lost events by place.
	Events int64            `json:"events,omitempty"`
	Lost   map[string]int64 `json:"lost,omitempty"`
	// Processes counts captured packets by their process; nil if the capture does not name processes.
	Processes *Processes `json:"processes,omitempty"`
	// Files of the result, oldest first.
	Files []File `json:"files,omitempty"`
	// Gate is the ID of the container whose gate the probe opened after it was attached. Only this shows that the Pod was
	// traced from its first instruction: the gate's own message can be forged.
	Gate string `json:"gate,omitempty"`
	// Gated: the Pod has a gate, which the probe was to open.
	Gated bool `json:"gated,omitempty"`
}

// Processes counts packets by whether they name their process.
type Processes struct {
	Named   int64            `json:"named,omitempty"`
	None    int64            `json:"none,omitempty"`    // belong to no process of the Pod
	Unknown map[string]int64 `json:"unknown,omitempty"` // by reason
	// Message says why no packet names its process, or not all.
	Message string `json:"message,omitempty"`
}

// Counts of packets and bytes.
type Counts struct {
	Seen          int64 `json:"seen"`                  // packets that matched the filter
	Packets       int64 `json:"packets"`               // of these, in the files
	Bytes         int64 `json:"bytes"`                 // captured bytes of the packets in the files
	Overwritten   int64 `json:"overwritten,omitempty"` // were in a file that a ring of files has removed
	DroppedKernel int64 `json:"dropKernel,omitempty"`
	DroppedRing   int64 `json:"dropRing,omitempty"`
	DroppedWriter int64 `json:"dropWriter,omitempty"`
	Truncated     int64 `json:"truncated,omitempty"`
}

// Dropped is the sum over all places.
func (c Counts) Dropped() int64 { return c.DroppedKernel + c.DroppedRing + c.DroppedWriter }

// AddsUp reports whether seen = packets + overwritten + dropped.
func (c Counts) AddsUp() bool { return c.Seen == c.Packets+c.Overwritten+c.Dropped() }

// LostEvents is the sum over all places.
func (a Account) LostEvents() int64 {
	n := int64(0)
	for _, lost := range a.Lost {
		n += lost
	}
	return n
}

// AddsUp reports whether Seen is the sum of the other counts.
func (a Account) AddsUp() bool {
	return a.Seen == a.Packets+a.Overwritten+a.Dropped()+a.Events+a.LostEvents()
}

// Interface is the account of one interface of the target's network namespace.
type Interface struct {
	Name string `json:"name"`
	Counts
}

// File of a result.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// LowestVersion of the format that can hold a.
func (a Account) LowestVersion() int {
	if a.Processes != nil {
		return Version
	}
	if a.Events > 0 || len(a.Lost) > 0 {
		return traceVersion
	}
	if a.Overwritten > 0 || len(a.Files) > firstMaxFiles {
		return ringVersion
	}
	return firstVersion
}

// Marshal returns a as JSON of at most MaxBytes. It cuts texts, and leaves out interfaces, whose counts stay in the totals,
// and the oldest files.
func (a Account) Marshal() ([]byte, error) {
	a.Message, a.EngineMessage = text.Truncate(a.Message, MaxText), text.Truncate(a.EngineMessage, MaxText)
	if a.Processes != nil {
		p := *a.Processes
		p.Message = text.Truncate(p.Message, MaxText)
		a.Processes = &p
	}
	a.Files = a.Files[max(0, len(a.Files)-MaxFiles):]
	a.Version = a.LowestVersion()
	for n := min(len(a.Interfaces), MaxInterfaces); ; n-- {
		a.Interfaces = a.Interfaces[:n]
		b, err := json.Marshal(a)
		if err != nil {
			return nil, fmt.Errorf("marshal account: %w", err)
		}
		if len(b) <= MaxBytes || n == 0 && a.longest() == nil {
			return b, nil
		}
		if n == 0 {
			a.shorten() // a character may take six bytes in JSON
			n = 1
		}
	}
}

// longest returns the longest of the texts; nil if all are empty.
func (a *Account) longest() *string {
	texts := []*string{&a.Message, &a.EngineMessage}
	if a.Processes != nil {
		texts = append(texts, &a.Processes.Message)
	}
	longest := slices.MaxFunc(texts, func(s, t *string) int { return cmp.Compare(len(*s), len(*t)) })
	if *longest == "" {
		return nil
	}
	return longest
}

// shorten halves the longest of the texts.
func (a *Account) shorten() {
	if longest := a.longest(); longest != nil {
		*longest = text.Truncate(*longest, len(*longest)/2)
	}
}

// Parse reads an account from an untrusted source: it checks sizes and counts, and cuts texts.
func Parse(b []byte) (Account, error) {
	var a Account
	if len(b) > MaxBytes {
		return a, fmt.Errorf("parse account: %d bytes, at most %d", len(b), MaxBytes)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return Account{}, fmt.Errorf("parse account: %w", err)
	}
	if a.Version < 1 || a.Version > Version {
		return Account{}, fmt.Errorf("parse account: version %d, known are 1 to %d: upgrade the operator", a.Version, Version)
	}
	if len(a.Files) > MaxFiles || len(a.Interfaces) > MaxInterfaces {
		return Account{}, fmt.Errorf("parse account: %d files and %d interfaces, at most %d and %d", len(a.Files), len(a.Interfaces), MaxFiles, MaxInterfaces)
	}
	if err := a.check(); err != nil {
		return Account{}, fmt.Errorf("parse account: %w", err)
	}
	a.Message, a.Reason = text.Truncate(a.Message, MaxText), text.Truncate(a.Reason, 64)
	a.Engine, a.EngineMessage = text.Truncate(a.Engine, MaxEngine), text.Truncate(a.EngineMessage, MaxText)
	a.Gate = text.Truncate(a.Gate, MaxID)
	if a.Processes != nil {
		a.Processes.Message = text.Truncate(a.Processes.Message, MaxText)
	}
	return a, nil
}

func (a Account) check() error {
	switch a.State {
	case StateStarting, StateCapturing, StateDone:
	default:
		return fmt.Errorf("unknown state %q", text.Truncate(string(a.State), 32))
	}
	if len(a.Lost) > MaxLost {
		return fmt.Errorf("events lost in %d places, at most %d", len(a.Lost), MaxLost)
	}
	counts := []int64{a.Seen, a.Packets, a.Bytes, a.DroppedKernel, a.DroppedRing, a.DroppedWriter, a.Truncated, a.Overwritten, a.Events}
	if p := a.Processes; p != nil {
		if len(p.Unknown) > MaxReasons {
			return fmt.Errorf("processes unknown for %d reasons, at most %d", len(p.Unknown), MaxReasons)
		}
		counts = slices.AppendSeq(append(counts, p.Named, p.None), maps.Values(p.Unknown))
	}
	for _, n := range slices.AppendSeq(counts, maps.Values(a.Lost)) {
		if n < 0 {
			return fmt.Errorf("negative count %d", n)
		}
	}
	return nil
}
