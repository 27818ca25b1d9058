package trace

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// Each first write to a page of a new mapping is a page fault.
func TestPageFaults(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	pid, release := pod.startWorkload(t, "touch", 0)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupMemory}, Durations: true})
	release()
	lines := r.stop()
	i := slices.IndexFunc(lines, func(l line) bool { return l.Call == "mmap" && argOf(t, &l, "length") == touched<<12 })
	if i < 0 {
		t.Fatalf("the mapping is not among %d lines", len(lines))
	}
	first := uint64(*lines[i].Ret)
	faults, measured := map[uint64]int{}, 0
	for _, l := range lines {
		if l.Group != string(decode.GroupMemory) {
			t.Errorf("not requested: %+v", l)
		}
		if l.Call != decode.EventFault || l.HostPID != pid {
			continue
		}
		at := argOf(t, &l, "address")
		if at < first || at >= first+touched<<12 {
			continue
		}
		faults[(at-first)>>12]++
		if l.Args["access"] != "write" || argOf(t, &l, "present") != 0 || argOf(t, &l, "ip") == 0 || l.Ret != nil {
			t.Errorf("fault %+v", l)
		}
		if l.LatencyNs != nil && *l.LatencyNs > 0 && *l.LatencyNs < int64(time.Minute) && argOf(t, &l, "major") == 0 {
			measured++
		}
	}
	// On a busy machine a fault may take so long that it is written before its end.
	least := 0
	if watchesFunctions(t) {
		least = touched * 9 / 10
	}
	t.Logf("%d faults measured", measured)
	if len(faults) != touched || measured < least {
		t.Errorf("faults in %d pages, %d of them measured, want %d", len(faults), measured, touched)
	}
	if r.result.Account.Lost() > 0 {
		t.Errorf("%+v", r.result.Account)
	}
}

// watchesFunctions reports whether the kernel supports fexit.
func watchesFunctions(t *testing.T) bool {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFExit, AttachTo: "handle_mm_fault", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return false
	}
	defer p.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return false
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// A mapping has the path of its descriptor, which is known only with the group file.
func TestPathOfAMapping(t *testing.T) {
	t.Parallel()
	program := compile(t, "copy.c")
	for name, tc := range map[string]struct {
		groups []decode.Group
		want   string
	}{
		"with files":    {[]decode.Group{decode.GroupMemory, decode.GroupFile}, "/etc/passwd"},
		"without files": {[]decode.Group{decode.GroupMemory}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			h := pod.hold(t, "", program, "map", "/etc/passwd", "copied")
			r := start(t, &Config{PodUID: pod.uid, Groups: tc.groups})
			h.run()
			var paths []string
			for _, l := range r.stop() {
				if l.Call == "mmap" && asText(l.Args["fd"]) != "-1" && l.Comm == "copy" {
					paths = append(paths, l.Path)
				}
			}
			if !slices.Contains(paths, tc.want) || tc.want == "" && len(slices.Compact(paths)) > 1 {
				t.Errorf("files were mapped with paths %q, want %q", paths, tc.want)
			}
		})
	}
}

// argOf returns a numeric argument.
func argOf(t *testing.T, l *line, name string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(asText(l.Args[name]), 0, 64)
	if err != nil {
		t.Fatalf("%s of %+v: %v", name, l, err)
	}
	return n
}

// asText formats a value as in the trace.
func asText(v any) string { return fmt.Sprint(v) }
