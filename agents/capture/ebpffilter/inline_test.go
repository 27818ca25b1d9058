package ebpffilter_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/filters/simulator"
	"github.com/sonde-operator/sonde/test/privileged"
)

// checkInline runs an inlined filter in the simulator: it accepts a packet if want, the function's result, is not 0.
func checkInline(t *testing.T, filter bpfprog.Program, p *simulator.Packet, want uint32) {
	t.Helper()
	spec, err := loadtest.Inlined(filter, ebpffilter.AtIngress())
	if err != nil {
		nothing, long := strings.Contains(err.Error(), "it accepts nothing"), strings.Contains(err.Error(), "is too long")
		if want != 0 && !long || !nothing && !long {
			t.Fatalf("in line: %v\n%v", err, filter)
		}
		return
	}
	function := slices.IndexFunc(spec.Instructions, func(in asm.Instruction) bool { return in.Symbol() == loadtest.Function })
	checkForm(t, spec.Instructions[:function])
	if got, err := simulator.Run(spec.Instructions, p); err != nil || got != min(want, 1) {
		t.Fatalf("in line %d, %v, the function %#x\n%v\n%v", got, err, want, filter, spec.Instructions)
	}
}

// TestInlineInKernel loads and runs all programs that read a packet's bytes, divide, or jump to several targets.
func TestInlineInKernel(t *testing.T) {
	privileged.Need(t)
	runs := 0
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		tc := programs[name]
		if !slices.ContainsFunc(tc.program, func(in bpfprog.Instruction) bool {
			return in.Code&^0x18 == unix.BPF_LD|unix.BPF_ABS || in.Code&^0x18 == unix.BPF_LD|unix.BPF_IND ||
				in.Code == unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH || in.Code&^0x10 == alu|unix.BPF_DIV|byX || in.Jt != in.Jf
		}) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			spec, err := loadtest.Inlined(tc.program, ebpffilter.AtIngress())
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := loadtest.LoadSpec(t, spec)
			if err != nil {
				t.Fatalf("load: %+v\n%v", err, spec.Instructions)
			}
			if got, err := loadtest.Run(loaded, frame(), 7); err != nil || got != min(tc.want, 1) {
				t.Errorf("%#x, %v, want %#x\n%v", got, err, tc.want, spec.Instructions)
			}
		})
		runs++
	}
	t.Logf("%d programs", runs)
}

// TestInlineSparesTheCall: if the bytes are in the linear part, the function is not called. Here it would refuse the
// packet.
func TestInlineSparesTheCall(t *testing.T) {
	filter := bpfprog.Program{op(ldb, 20), jump(unix.BPF_JEQ, 20, 0, 1), op(ret, 5), op(ret, 0)}
	spec := loadtest.SpecInline()
	never, err := ebpffilter.Translate(bpfprog.Program{op(ret, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := ebpffilter.Replace(spec, loadtest.Function, never); err != nil {
		t.Fatal(err)
	}
	if err := ebpffilter.Inline(spec, loadtest.Function, filter, -1); err != nil {
		t.Fatal(err)
	}
	refused := ^uint32(0)
	for linear, want := range map[int]uint32{100: 1, 21: 1, 20: refused} {
		p := simulated()
		p.Linear = linear
		if got, err := simulator.Run(spec.Instructions, p); err != nil || got != want {
			t.Errorf("%d bytes in the linear part: %#x, %v, want %#x", linear, got, err, want)
		}
	}
	if begin := spec.Instructions[0]; begin.Symbol() != "see" || btf.FuncMetadata(&begin) == nil || begin.Source() == nil {
		t.Errorf("the program begins with %v", begin)
	}
}

func TestInlineRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		filter   bpfprog.Program
		function string
		change   func(*ebpf.ProgramSpec)
		want     string
	}{
		"empty":       {function: loadtest.Function, want: "the program is empty"},
		"invalid":     {filter: bpfprog.Program{op(ldi, 1)}, function: loadtest.Function, want: "does not end with a return"},
		"nothing":     {filter: bpfprog.Program{op(ret, 0)}, function: loadtest.Function, want: "it accepts nothing"},
		"no function": {filter: bpfprog.Program{op(ret, 1)}, function: "refuses", want: "no function refuses"},
		"the program": {filter: bpfprog.Program{op(ret, 1)}, function: "see", want: "no function see"},
		"a call": {filter: bpfprog.Program{op(ret, 1)}, function: loadtest.Function, want: "cannot be moved", change: func(spec *ebpf.ProgramSpec) {
			spec.Instructions = loadtest.Spec().Instructions
		}},
		"no types": {filter: bpfprog.Program{op(ret, 1)}, function: loadtest.Function, want: "cannot be moved", change: func(spec *ebpf.ProgramSpec) {
			spec.Instructions[0] = asm.Mov.Imm(asm.R0, 1).WithSymbol("see")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := loadtest.SpecInline()
			if tc.change != nil {
				tc.change(spec)
			}
			before := spec.Instructions.String()
			if err := ebpffilter.Inline(spec, tc.function, tc.filter, 0); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if after := spec.Instructions.String(); after != before {
				t.Errorf("the program was changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}
