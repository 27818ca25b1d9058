package tc

import (
	"bytes"
	_ "embed"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/privileged"
)

// A capture that names processes loads programs for each link type, with a filter or without, and those that follow processes
// once. One that does not has neither those programs nor their maps.
func TestProcessesAreLoadedIfWanted(t *testing.T) {
	privileged.Need(t)
	packets := []string{packetsProgSondeIn, packetsProgSondeOut}
	for name, tc := range map[string]struct {
		filters   map[pcapng.LinkType]bpfprog.Program
		processes map[string]any
		wantFirst []string
		wantMaps  bool
	}{
		"not wanted":    {nil, nil, packets, false},
		"wanted":        {nil, processConstants(&backend.Processes{}, namespace{}), append(slices.Clone(packets), hooks...), true},
		"with a filter": {frames.OnlyDiscard(), processConstants(&backend.Processes{}, namespace{}), append(slices.Clone(packets), hooks...), true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newPrograms(1<<20, snapLen)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.close() }()
			p.processes = tc.processes
			for _, lt := range []pcapng.LinkType{pcapng.LinkTypeEthernet, pcapng.LinkTypeRaw} {
				filter, err := backend.Filter(tc.filters[lt], lt, snapLen)
				if err == nil {
					err = p.load(lt, filter, slog.New(slog.DiscardHandler))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			first, second := p.of[pcapng.LinkTypeEthernet], p.of[pcapng.LinkTypeRaw]
			if diff := cmp.Diff(sorted(tc.wantFirst), names(first)); diff != "" {
				t.Errorf("programs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(sorted(packets), names(second)); diff != "" {
				t.Errorf("programs of the second link type (-want +got):\n%s", diff)
			}
			if got := first.Maps[namedMapRecords] != nil; got != tc.wantMaps {
				t.Errorf("maps of processes: %t, want %t", got, tc.wantMaps)
			}
		})
	}
}

func names(c *ebpf.Collection) []string { return slices.Sorted(maps.Keys(c.Programs)) }

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// The kernel's helper takes a raw socket for a connection of MPTCP, and reads past its end.
func TestMPTCPHelperIsNotCalled(t *testing.T) {
	spec, err := loadNamed()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range spec.Programs {
		for _, i := range p.Instructions {
			if i.IsBuiltinCall() && asm.BuiltinFunc(i.Constant) == asm.FnSkcToMptcpSock {
				t.Errorf("%s calls bpf_skc_to_mptcp_sock", name)
			}
		}
	}
}

// arm64 are the programs for arm64, also in a test that runs without its sources.
//
//go:embed named_arm64_bpfel.o
var arm64 []byte

// Outside of x86 only an atomic operation whose result is used keeps the order of reads. A compiler may remove it, or its result.
func TestReadsAreOrdered(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(arm64))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{namedProgSondeIn, namedProgSondeOut} {
		got := map[string]bool{}
		function := ""
		for _, i := range spec.Programs[program].Instructions {
			if i.Symbol() != "" {
				function = i.Symbol()
			}
			if op := i.OpCode.AtomicOp(); i.Dst == asm.RFP && (op == asm.FetchAdd || op == asm.FetchOr) {
				got[function] = true
			}
		}
		if diff := cmp.Diff(map[string]bool{program: true, "is_open": true}, got); diff != "" {
			t.Errorf("%s: functions with ordered reads (-want +got):\n%s", program, diff)
		}
	}
}

// A kernel without io_urings has no such tracepoint, and the other programs are loaded.
func TestKernelWithoutIOUring(t *testing.T) {
	for name, tc := range map[string]struct {
		tracepoint string
		want       bool
	}{
		"with io_urings": {"btf_trace_io_uring_register", true}, "without": {"btf_trace_task_rename", false},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := btf.NewBuilder([]btf.Type{&btf.Typedef{Name: tc.tracepoint, Type: &btf.Pointer{Target: &btf.Void{}}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := b.Marshal(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			kernel, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			spec, err := loadNamed()
			if err != nil {
				t.Fatal(err)
			}
			all := len(spec.Programs)
			leaveOutIOUring(spec.Programs, kernel)
			if got := spec.Programs[namedProgSondeRegister] != nil; got != tc.want || len(spec.Programs) < all-1 {
				t.Errorf("the program is there: %t, want %t; %d of %d programs", got, tc.want, len(spec.Programs), all)
			}
		})
	}
}
