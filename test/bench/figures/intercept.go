package figures

import (
	"slices"
	"time"
)

// Way is how the bytes of a stream get from the developer's machine into the cluster. Each one is a row in the tables.
type Way struct {
	Name  string
	Label string
	// Slow divides the bytes of the stream, so that a slow way does not take much longer than a fast one.
	Slow int64
}

// Names of ways.
const (
	WayDirect    = "direct"
	WaySonde     = "sonde"
	WayAPIServer = "sonde-apiserver"
	WayWireGuard = "wireguard" // the peer in the goals
)

// Ways in the order of a round.
var Ways = []Way{
	{Name: WayDirect, Label: "direct connection", Slow: 1},
	{Name: WaySonde, Label: "Sonde", Slow: 1},
	{Name: WayAPIServer, Label: "Sonde, through the API server's handler", Slow: 1},
	{Name: WayWireGuard, Label: "netstack WireGuard", Slow: 8},
}

// Processes between the source and the sink of a stream. WireGuard's two ends are source and sink themselves.
const (
	ProcessClient    = "client"
	ProcessStowaway  = "Stowaway"
	ProcessCarrier   = "carrier"
	ProcessAPIServer = "API server" // not Sonde's, so not part of its cost
	ProcessSource    = "source"
	ProcessSink      = "sink"
)

// Intercept has the samples of the data path of an InterceptRequest.
type Intercept struct {
	Streams   []Streamed  `json:"streams"`
	Forwarded []Forwarded `json:"forwarded"`
	Held      []Held      `json:"held"`
	Load      string      `json:"load"` // of the machine at the beginning
	LoadAfter string      `json:"loadAfter"`
}

// Streamed is one stream by one way.
type Streamed struct {
	Way   string        `json:"way"`
	Round int           `json:"round"`
	Bytes int64         `json:"bytes"`
	Wall  time.Duration `json:"wall"` // from the first to the last byte at the sink
	// CPU is the CPU time of each process between source and sink.
	CPU map[string]time.Duration `json:"cpu,omitempty"`
}

// Forwarded has the median time of a keep-alive request that does not match: sent to the app itself, to a plain splice
// proxy, and to the carrier.
type Forwarded struct {
	Round    int           `json:"round"`
	Requests int           `json:"requests"` // by each way
	Direct   time.Duration `json:"direct"`
	Splice   time.Duration `json:"splice"`
	Carrier  time.Duration `json:"carrier"`
}

// Held is the memory of a Stowaway with many clients.
type Held struct {
	Round   int   `json:"round"`
	Clients int   `json:"clients"`
	Streams int   `json:"streams"` // of each client
	Memory  int64 `json:"memory"`  // bytes, the largest resident set
}

func (h *Held) mebibytes() float64 { return float64(h.Memory) / (1 << 20) }

// gigabits returns the gigabits per second.
func (s *Streamed) gigabits() float64 { return float64(s.Bytes) * 8 / float64(s.Wall) }

// secondsPerGB returns the CPU seconds for 10^9 bytes, without the API server's.
func (s *Streamed) secondsPerGB() float64 {
	var all time.Duration
	for name, cpu := range s.CPU {
		if name != ProcessAPIServer {
			all += cpu
		}
	}
	return float64(all) / float64(s.Bytes)
}

// added returns the time that the carrier adds to a request, as a multiple of what the splice proxy adds.
func (f *Forwarded) added() float64 {
	return float64(f.Carrier-f.Direct) / float64(max(f.Splice-f.Direct, 1))
}

// streams returns the streams of a way in the order of the rounds.
func (i *Intercept) streams(way string) []Streamed {
	return slices.DeleteFunc(slices.Clone(i.Streams), func(s Streamed) bool { return s.Way != way })
}

// times returns a figure of a way as a multiple of another's, for each round.
func (i *Intercept) times(way, than string, figure func(*Streamed) float64) []float64 {
	var out []float64
	ours, theirs := i.streams(way), i.streams(than)
	for n := range min(len(ours), len(theirs)) {
		out = append(out, figure(&ours[n])/figure(&theirs[n]))
	}
	return out
}

// eachOf returns a figure of each sample.
func eachOf[T any](samples []T, figure func(*T) float64) []float64 {
	out := make([]float64, 0, len(samples))
	for n := range samples {
		out = append(out, figure(&samples[n]))
	}
	return out
}
