package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// node reads a node's /proc.
type node struct{ proc string }

func (n node) read(path ...string) string {
	b, err := os.ReadFile(filepath.Join(append([]string{n.proc}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// rights checks this process's capabilities.
func (n node) rights() error {
	effective, err := strconv.ParseUint(field(n.read("self", "status"), "CapEff:"), 16, 64)
	if err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	return privilege.Check(effective, true)
}

// field returns the first word after a name at the start of a line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				return words[0]
			}
		}
	}
	return ""
}

// memory returns the node's total and available memory in bytes.
func (n node) memory() (total, available int64) {
	text := n.read("meminfo")
	kib := func(name string) int64 {
		v, err := strconv.ParseInt(field(text, name), 10, 64)
		if err != nil {
			return 0
		}
		return v << 10
	}
	return kib("MemTotal:"), kib("MemAvailable:")
}

// cgroup returns the cgroup versions of the node's first process (cgroups(7)): hierarchies with controllers are of version 1.
func (n node) cgroup() string {
	v1, v2 := versions([]byte(n.read("1", "cgroup")))
	switch {
	case v1 && v2:
		return "v1+v2"
	case v1:
		return "v1"
	case v2:
		return "v2"
	}
	return "unknown"
}

func versions(cgroups []byte) (v1, v2 bool) {
	for line := range bytes.Lines(cgroups) {
		parts := bytes.SplitN(line, []byte{':'}, 3)
		switch {
		case len(parts) != 3:
		case string(parts[0]) == "0":
			v2 = true
		default:
			v1 = true
		}
	}
	return v1, v2
}

// cgroups finds the processes' cgroups by BPF, as a trace does.
func (n node) cgroups() error {
	found, err := kernel.CountCgroups(n.proc)
	if err != nil {
		return err
	}
	if found == 0 {
		return errors.New("BPF finds no process with a cgroup")
	}
	return nil
}

// settings returns the settings that an admin may have changed.
func (n node) settings() []nodereport.Setting {
	var all []nodereport.Setting
	add := func(name, value string, meaning func(string) string) {
		if value == "" {
			return
		}
		all = append(all, nodereport.Setting{Name: name, Value: value, Meaning: meaning(value)})
	}
	sysctl := func(name string) string { return n.read(append([]string{"sys"}, strings.Split(name, ".")...)...) }
	for _, s := range sysctls {
		add(s.name, sysctl(s.name), s.meaning)
	}
	// From the node's file system: containers have no securityfs.
	add("lockdown", lockdown(n.read("1", "root", "sys", "kernel", "security", "lockdown")), func(mode string) string {
		if mode == "confidentiality" {
			return "BPF programs may not read the kernel's memory: no traces"
		}
		return ""
	})
	add("seccomp", seccomp(field(n.read("self", "status"), "Seccomp:")), func(string) string { return "of the probe's container" })
	return all
}

var sysctls = []struct {
	name    string
	meaning func(string) string
}{
	{"kernel.unprivileged_bpf_disabled", func(string) string { return "no matter: the probe has rights" }},
	{"kernel.perf_event_paranoid", func(string) string { return "no matter: the probe has rights" }},
	{"net.core.bpf_jit_enable", func(v string) string {
		if v == "0" {
			return "BPF programs are interpreted: traces cost several times as much"
		}
		return ""
	}},
	{"kernel.bpf_stats_enabled", func(v string) string {
		if v == "1" {
			return "each run of a BPF program is timed: traces cost more"
		}
		return ""
	}},
}

// lockdown returns the mode in brackets, as in "[none] integrity confidentiality" (kernel_lockdown(7)).
func lockdown(modes string) string {
	_, rest, _ := strings.Cut(modes, "[")
	mode, _, _ := strings.Cut(rest, "]")
	return mode
}

// seccomp names a mode of seccomp (proc(5)).
func seccomp(mode string) string {
	names := map[string]string{"0": "off", "1": "strict", "2": "filter"}
	return names[mode]
}
