// Package captureconfig is the contract between manager and agent about a capture: its ConfigMap, and the paths in the
// agent's Pod. It carries a version.
package captureconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Version is the highest version of the format that this package reads. Marshal writes the lowest one that can hold the
// configuration: 2 has a ring of files, 3 a trace, 4 a trace of some containers or a command, 5 the engine BPF, and 6 the
// names of processes. A probe refuses a newer version.
const Version = 6

// Engines of packets; empty is AF_PACKET, the only one before version 5.
const (
	EngineAuto     = "auto"
	EngineBPF      = "bpf"
	EngineAFPacket = "afpacket"
)

// Key of the ConfigMap that holds the configuration, and names in the agent's Pod.
const (
	Key = "capture.json"

	ConfigDir  = "/etc/sonde"     // the ConfigMap, in the probe
	TLSDir     = "/etc/sonde-tls" // the keeper's key pair and the manager's certificate, in the keeper
	ResultsDir = "/results"       // emptyDir: the probe writes, the keeper reads
	ControlDir = "/control"       // emptyDir: the keeper writes, the probe reads

	// ProgressFile, in ResultsDir, holds the probe's account (internal/wire/account). The probe replaces it by rename several
	// times a second: if the file stays the same, the probe is dead.
	ProgressFile = "progress.json"
	// StopFile, in ControlDir, makes the probe stop; its content is the reason.
	StopFile = "stop"
	// FollowFile, in ControlDir, says whether someone reads the packets while they are captured: it begins with Followed then. The
	// probe writes them sooner, and keeps HorizonFile up to date.
	FollowFile = "follow"
	Followed   = '1'
	// HorizonFile, in ResultsDir, says up to which time all packets are in the file (AppendHorizon).
	HorizonFile = "horizon"

	ContainerProbe  = "probe"
	ContainerKeeper = "keeper"
	KeeperPort      = 8443
)

// The users and groups of keepers: each agent Job has one to itself, FirstKeeperUser <= user < FirstKeeperUser+KeeperUsers. The
// range lies above the users that OpenShift gives to namespaces (1000000000 to 1999999999), above the default range of sssd (up
// to 2000200000), and below the largest user that Kubernetes accepts (2147483647).
const (
	FirstKeeperUser = 2_001_000_000
	KeeperUsers     = 146_000_000
)

// Keys of the Secret of a capture: two self-signed pairs that accept only each other.
const (
	SecretServerCert = "server.crt" // keeper's, pinned by the manager
	SecretServerKey  = "server.key"
	SecretClientCert = "client.crt" // manager's, pinned by the keeper
	SecretClientKey  = "client.key" // never mounted anywhere, and sealed (internal/operator/sealed)
)

// Config of one capture, the same for all of its Pods.
type Config struct {
	Version   int    `json:"v"`
	UID       string `json:"uid"`       // of the custom resource
	Kind      string `json:"kind"`      // PacketCapture
	Namespace string `json:"namespace"` // of the custom resource
	Name      string `json:"name"`
	JobID     string `json:"jobId"`
	Requester string `json:"requester"` // user name, for the file's comment
	Target    string `json:"target"`    // Kind/name
	// TargetNamespace is where the target runs.
	TargetNamespace string `json:"targetNamespace"`

	// Filter is the text for the file's comment; the kernel runs Programs.
	Filter string `json:"filter,omitempty"`
	// Programs holds the filter compiled for each link type (pcap's LINKTYPE numbers), in the text
	// form of internal/wire/bpfprog; empty captures everything.
	Programs map[int32]string `json:"programs,omitempty"`
	// SnapLength in bytes.
	SnapLength int32 `json:"snapLength"`
	// Interfaces by name; empty means all.
	Interfaces []string `json:"interfaces,omitempty"`
	// Engine for packets.
	Engine string `json:"engine,omitempty"`
	// Processes makes packets name their processes.
	Processes bool `json:"processes,omitempty"`
	// MaxBytes of the file; MaxPackets in it, 0 means no limit.
	MaxBytes   int64 `json:"maxBytes"`
	MaxPackets int64 `json:"maxPackets,omitempty"`
	// Trace of events; nil captures packets, by the fields above.
	Trace *Trace `json:"trace,omitempty"`
	// Rotate writes a ring of files; nil writes one file, whose limit ends the capture.
	Rotate *Rotate `json:"rotate,omitempty"`
	// DiskFloor is the space to keep free on the node's disk; nil means none.
	DiskFloor *Floor `json:"diskFloor,omitempty"`
	// RingBytes of memory for the rings of all interfaces or CPUs together.
	RingBytes int64 `json:"ringBytes"`
}

// Trace selects the events of a trace.
type Trace struct {
	// Groups of system calls.
	Groups []string `json:"groups"`
	// Durations measures how long calls take; MinLatency leaves out those that took less, in nanoseconds.
	Durations  bool  `json:"durations,omitempty"`
	MinLatency int64 `json:"minLatency,omitempty"`
	// MaxEvents in the files; 0 means no limit.
	MaxEvents int64 `json:"maxEvents,omitempty"`
	// Flap writes FLAP's lines instead of JSON.
	Flap bool `json:"flap,omitempty"`
	// Containers by name and Command limit the trace to their processes; empty means all. Children includes descendants of the
	// command's processes.
	Containers []string `json:"containers,omitempty"`
	Command    string   `json:"command,omitempty"`
	Children   bool     `json:"children,omitempty"`
}

// Rotate is a ring of files that keeps the newest packets.
type Rotate struct {
	MaxBytes int64 `json:"maxBytes"` // of each file
	Files    int32 `json:"files"`
}

// Floor is free space: the larger one of a percentage of the file system and a number of bytes.
type Floor struct {
	Percent int64 `json:"percent,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
}

// Of returns the floor of a file system with total bytes, in bytes.
func (f Floor) Of(total uint64) uint64 { return max(uint64(f.Bytes), total/100*uint64(f.Percent)) }

// check refuses values that no manager writes.
func (c Config) check() error {
	if !slices.Contains([]string{"", EngineAuto, EngineBPF, EngineAFPacket}, c.Engine) {
		return fmt.Errorf("engine %q is not known", c.Engine)
	}
	if c.Trace != nil {
		return errors.Join(c.checkTrace(), c.checkFloor())
	}
	if c.Processes && c.Engine != EngineAuto && c.Engine != EngineBPF {
		return fmt.Errorf("engine %q cannot name processes", c.Engine)
	}
	if c.SnapLength <= 0 || c.MaxBytes <= 0 || c.MaxPackets < 0 || c.RingBytes <= 0 {
		return fmt.Errorf("snapLength %d, maxBytes %d, maxPackets %d, ringBytes %d: limits must be positive", c.SnapLength, c.MaxBytes, c.MaxPackets, c.RingBytes)
	}
	if r := c.Rotate; r != nil && (r.MaxBytes < 65536 || r.Files < 2 || r.Files > 16 || r.MaxBytes > c.MaxBytes/int64(r.Files)) {
		return fmt.Errorf("rotate: %d files of %d bytes: 2 to 16 of at least 65536 must fit maxBytes %d", r.Files, r.MaxBytes, c.MaxBytes)
	}
	return c.checkFloor()
}

func (c Config) checkTrace() error {
	t := c.Trace
	if len(t.Groups) == 0 || t.MinLatency < 0 || t.MaxEvents < 0 || c.MaxBytes <= 0 || c.RingBytes <= 0 || c.Rotate != nil {
		return fmt.Errorf("trace of %d groups: groups, maxBytes %d and ringBytes %d must be there, and no rotate", len(t.Groups), c.MaxBytes, c.RingBytes)
	}
	if t.Children && t.Command == "" || slices.Contains(t.Containers, "") {
		return fmt.Errorf("trace of containers %q: none without a name, and children of a command alone", t.Containers)
	}
	return nil
}

func (c Config) checkFloor() error {
	if f := c.DiskFloor; f != nil && (f.Percent < 0 || f.Percent > 100 || f.Bytes < 0) {
		return fmt.Errorf("diskFloor: %d percent, %d bytes: neither can be kept free", f.Percent, f.Bytes)
	}
	return nil
}

// LowestVersion of the format that can hold c.
func (c Config) LowestVersion() int {
	switch {
	case c.Processes:
		return 6
	case c.Engine == EngineBPF:
		return 5
	case c.Trace != nil && (len(c.Trace.Containers) > 0 || c.Trace.Command != ""):
		return 4
	case c.Trace != nil:
		return 3
	case c.Rotate != nil:
		return 2
	default:
		return 1
	}
}

// Marshal returns the ConfigMap's value.
func (c Config) Marshal() (string, error) {
	c.Version = c.LowestVersion()
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", fmt.Errorf("marshal capture configuration: %w", err)
	}
	return string(b), nil
}

// Parse reads a configuration of this version or an older one.
func Parse(b []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("parse capture configuration: %w", err)
	}
	if c.Version < 1 || c.Version > Version {
		return Config{}, fmt.Errorf("parse capture configuration: version %d, known are 1 to %d", c.Version, Version)
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("parse capture configuration: %w", err)
	}
	return c, nil
}
