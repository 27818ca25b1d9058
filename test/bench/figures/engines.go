package figures

// Engine captures packets. Each one is a row in the tables.
type Engine struct {
	Name  string
	label string
	// Exact says that stopping the engine empties its ring. Otherwise more packets must be sent to push the last ones
	// out.
	Exact bool
	// whole says that it supports neither a snap length nor packets above the MTU.
	whole bool
}

// Names of engines.
const (
	EngineNone     = "none"
	EngineBPF      = "sonde-bpf"
	EngineAFPacket = "sonde-afpacket"
	EngineMain     = "tcpdump-64M" // the peer in the goals
)

// own lists Sonde's engines.
var own = []string{EngineBPF, EngineAFPacket}

// Engines in the order of a round.
var Engines = []Engine{
	{Name: EngineNone, label: "no capture"},
	{Name: EngineBPF, label: "Sonde, bpf", Exact: true},
	{Name: EngineAFPacket, label: "Sonde, afpacket", Exact: true},
	{Name: EngineMain, label: "tcpdump -B 65536"},
	{Name: "tcpdump", label: "tcpdump"},
	{Name: "dumpcap", label: "dumpcap -B 64"},
	{Name: "netsniff-ng", label: "netsniff-ng -S 64MiB", whole: true},
}

// EngineByName returns the engine, or nil if there is none of that name.
func EngineByName(name string) *Engine {
	for i := range Engines {
		if Engines[i].Name == name {
			return &Engines[i]
		}
	}
	return nil
}
