package figures

import (
	"slices"
	"time"
)

// Live has the samples of what reads a capture while it runs, and of captures that name processes.
type Live struct {
	// Flows are runs of Sonde's BPF programs in FlowScenarios.
	Flows     []Sample   `json:"flows"`
	Followed  []Followed `json:"followed"`
	Latencies []Latency  `json:"latencies"`
	Load      string     `json:"load"` // of the machine at the beginning
	LoadAfter string     `json:"loadAfter"`
}

// FlowPair is the same traffic without and with the names of processes.
type FlowPair struct {
	label   string
	Off, On Scenario
	// times is how many times the cost without names the cost with them may be.
	times float64
}

// FlowPairs in the order of a round. In a short flow the next packet belongs to another one.
var FlowPairs = []FlowPair{
	flowPair("few", "4 flows", 4, 1.3),
	flowPair("many", "10 000 short flows", 10_000, 1.6),
}

func flowPair(name, label string, flows int, times float64) FlowPair {
	s := Scenario{Name: name + "-off", label: label, Size: 64, Filter: floodFilter, Disk: true, Flows: flows}
	on := s
	on.Name, on.Processes = name+"-on", true
	return FlowPair{label: label, Off: s, On: on, times: times}
}

// Followed is one run of the plugin that follows a capture of several Pods.
type Followed struct {
	Round int `json:"round"`
	Pods  int `json:"pods"`
	// Written packets and bytes of all Pods. Packets are those in the stream, and Left those that the plugin reports as left out.
	Written int64 `json:"written"`
	Bytes   int64 `json:"bytes"`
	Packets int64 `json:"packets"`
	Left    int64 `json:"left"`
	// Late packets came out of order, of those in the stream.
	Late int64         `json:"late"`
	Wall time.Duration `json:"wall"` // from the first to the last byte that the Pods wrote
	CPU  time.Duration `json:"cpu"`  // of the plugin
	// Anonymous is the most memory of the plugin without the pages of files, and Resident with them, in bytes.
	Anonymous int64 `json:"anonymous"`
	Resident  int64 `json:"resident"`
}

func (f *Followed) rate() float64      { return float64(f.Bytes) / 1e6 / f.Wall.Seconds() }
func (f *Followed) cores() float64     { return float64(f.CPU) / float64(f.Wall) }
func (f *Followed) anonymous() float64 { return float64(f.Anonymous) / (1 << 20) }
func (f *Followed) resident() float64  { return float64(f.Resident) / (1 << 20) }
func (f *Followed) silent() float64    { return float64(f.Written - f.Packets - f.Left) }

// LiveWay is how a capture is followed when its latency is measured. Each one is a row in the table.
type LiveWay struct {
	Name  string
	label string
	// Args of kubectl sonde follow. Alone means that there is no capture, and tshark gets its packets from bench.
	Args  []string
	Alone bool
	// Quiet Pods that are captured beside the one that gets packets: 0 or 1.
	Quiet int
	// Tshark are the arguments that make it read its standard input.
	Tshark []string
}

// Ways for tshark to read a pipe: as a file, or as an interface by its process dumpcap.
var (
	asFile      = []string{"-r", "-"}
	asInterface = []string{"-i", "-"}
)

// Names of ways with a goal.
const (
	wayDefault = "default"
	wayPipe    = "default-pipe"
	wayShort   = "short-pipe"
)

// LiveWays in the order of a round.
var LiveWays = []LiveWay{
	{Name: wayDefault, label: "default settings, `tshark -r -`", Tshark: asFile},
	{Name: "quiet", label: "the same beside a quiet Pod", Tshark: asFile, Quiet: 1},
	{Name: wayPipe, label: "default settings, `tshark -i -`", Tshark: asInterface},
	{Name: wayShort, label: "`--delay 50ms`, `tshark -i -`", Args: []string{"--delay", "50ms"}, Tshark: asInterface},
	{Name: "alone-pipe", label: "`tshark -i -` alone", Tshark: asInterface, Alone: true},
}

// Latency of packets by one way.
type Latency struct {
	Way   string          `json:"way"`
	Round int             `json:"round"`
	Times []time.Duration `json:"times"` // from a packet on the wire to its line in tshark
}

// quantile returns the time within which a share of the packets have their lines, in milliseconds.
func (l *Latency) quantile(share float64) float64 {
	t := slices.Clone(l.Times)
	slices.Sort(t)
	if len(t) == 0 {
		return 0
	}
	return float64(t[min(int(share*float64(len(t))), len(t)-1)]) / 1e6
}

// latencies returns a quantile of a way for each round, in milliseconds.
func (l *Live) latencies(way string, share float64) []float64 {
	var out []float64
	for i := range l.Latencies {
		if one := &l.Latencies[i]; one.Way == way {
			out = append(out, one.quantile(share))
		}
	}
	return out
}

// costs returns the costs of a scenario of flows, for each round.
func (l *Live) costs(s *Scenario) []cost {
	return (&Results{Samples: l.Flows}).costs(s, EngineBPF)
}

// timesMore returns the cost with names relative to that without, for each round.
func (p *FlowPair) timesMore(l *Live) []float64 {
	var out []float64
	off, on := totals(l.costs(&p.Off)), totals(l.costs(&p.On))
	for i := range min(len(off), len(on)) {
		if off[i] > 0 {
			out = append(out, on[i]/off[i])
		}
	}
	return out
}
