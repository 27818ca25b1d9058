package figures

import (
	"fmt"
	"time"
)

// Sample is one run of one engine in one scenario.
type Sample struct {
	Scenario string        `json:"scenario"`
	Engine   string        `json:"engine"`
	Round    int           `json:"round"`
	Packets  int           `json:"packets"` // that passed over the link
	Bytes    int64         `json:"bytes"`   // of these packets
	Captured int           `json:"captured"`
	Dropped  int           `json:"dropped"`
	Wall     time.Duration `json:"wall"`
	Sender   time.Duration `json:"sender"`  // CPU time on the sender's side: of the traffic and of the capture's part in it
	Beside   Sent          `json:"beside"`  // frames sent alternately to the namespace that is not captured; not for streams
	Process  time.Duration `json:"process"` // CPU time of the capturing process since it was ready
	Memory   Memory        `json:"memory"`
	File     int64         `json:"file"` // bytes
}

// Sent counts frames and the time it took to send them.
type Sent struct {
	Frames int           `json:"frames"`
	Wall   time.Duration `json:"wall"`
	// CPU is the CPU time on the sender's side. The sender never sleeps while it sends, so this is its wall time
	// without the time in which it waited for a CPU. It includes interrupts, and the time of the softirq thread is
	// added.
	CPU time.Duration `json:"cpu"`
}

// Memory of a process, in bytes.
type Memory struct {
	Peak int64 `json:"peak"` // largest value
	Ring int64 `json:"ring"` // part of Peak: rings shared with the kernel, and BPF maps
}

// Rate is the highest rate without loss of an engine.
type Rate struct {
	Scenario string  `json:"scenario"`
	Engine   string  `json:"engine"`
	PPS      float64 `json:"pps"`
	// Bound says that the sender was the limit and not the engine.
	Bound bool `json:"bound"`
}

// Machine describes where a run was made, and with which versions.
type Machine struct {
	Date      time.Time         `json:"date"`
	CPU       string            `json:"cpu"`
	Cores     int               `json:"cores"`
	Memory    int64             `json:"memory"` // bytes
	Kernel    string            `json:"kernel"`
	Disk      string            `json:"disk"` // file system
	Go        string            `json:"go"`
	Versions  map[string]string `json:"versions"` // of the peers
	Ring      int64             `json:"ring"`     // bytes of Sonde's rings
	Held      bool              `json:"held"`     // free memory was not returned to the host
	Load      string            `json:"load"`     // at the beginning
	LoadAfter string            `json:"loadAfter"`
}

// Traced is one run of one tracer with one loop.
type Traced struct {
	Loop   string `json:"loop"`
	Tracer string `json:"tracer"`
	Round  int    `json:"round"`
	// Bystander says that the process of the loop is not in the traced Pod.
	Bystander bool `json:"bystander,omitempty"`
	Turns     int  `json:"turns"`
	// Bare is the time of a turn without the tracer, before and after it ran, and With the time with the tracer, both
	// in nanoseconds.
	Bare float64 `json:"bare"`
	With float64 `json:"with"`
	// Asked counts the calls that the tracer should record, Written and Lost what it reports.
	Asked   int `json:"asked"`
	Written int `json:"written"`
	Lost    int `json:"lost"`
	// Reader is the CPU time of the tracing process since it was ready.
	Reader time.Duration `json:"reader"`
	Memory Memory        `json:"memory"`
	File   int64         `json:"file"` // bytes
}

// added returns what the tracer adds to a turn, in nanoseconds.
func (t *Traced) added() float64 { return t.With - t.Bare }

// addedEach returns what the tracer adds to each traced call, or to each call of a bystander, in nanoseconds.
func (t *Traced) addedEach() float64 {
	if t.Bystander {
		return t.added() / float64(LoopByName(t.Loop).calls)
	}
	return t.added() / float64(TracerByName(t.Tracer).Calls(LoopByName(t.Loop)))
}

// readerEach returns the CPU time of the reader per written event, in nanoseconds.
func (t *Traced) readerEach() float64 { return float64(t.Reader) / float64(max(t.Written, 1)) }

func (t *Traced) loss() float64 { return float64(t.Lost) / float64(max(t.Written+t.Lost, 1)) }

// events returns the recorded events per second.
func (t *Traced) events() float64 {
	return float64(TracerByName(t.Tracer).Calls(LoopByName(t.Loop))) / t.With * float64(time.Second)
}

// TraceRate is the highest rate without loss of a tracer, with a loop on each of two CPUs and the tracer on either.
type TraceRate struct {
	Tracer string  `json:"tracer"`
	Rate   float64 `json:"rate"` // events per second
	// Bound says that the loops were the limit and not the tracer.
	Bound bool `json:"bound"`
	// Lossy is the lowest rate at which it lost events, or zero.
	Lossy float64 `json:"lossy"`
}

func gigabytes(n int64) string { return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30)) }

// RateSteps is how often the search for a rate without loss halves the interval.
const RateSteps = 5
