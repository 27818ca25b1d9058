package ebpffilter_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/privileged"
)

// withAnother returns a program that also calls a function behind the replaced one, and adds its result, 42. replaced
// is the index of the replaced function.
func withAnother() (spec *ebpf.ProgramSpec, replaced int) {
	spec = loadtest.Spec()
	info := *btf.FuncMetadata(&spec.Instructions[2])
	info.Name = "another"
	spec.Instructions = append(slices.Insert(spec.Instructions, 1,
		asm.Mov.Reg(asm.R6, asm.R0), asm.Mov.Reg(asm.R1, asm.R7), asm.Call.Label("another"), asm.Add.Reg(asm.R0, asm.R6)),
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, 40).WithSymbol("another"), &info).WithSource(asm.Comment("another")),
		asm.Add.Imm(asm.R0, 2), asm.Return())
	first := spec.Instructions[0]
	spec.Instructions = slices.Insert(spec.Instructions, 1, asm.Call.Label(loadtest.Function))
	spec.Instructions[0] = btf.WithFuncMetadata(asm.Mov.Reg(asm.R7, asm.R1).WithSymbol(first.Symbol()), btf.FuncMetadata(&first)).
		WithSource(first.Source())
	return spec, 7
}

func TestReplace(t *testing.T) {
	privileged.Need(t)
	spec, at := withAnother()
	before := slices.Clone(spec.Instructions)
	body, err := ebpffilter.Translate(bpfprog.Program{op(ldb, 20), op(alu|unix.BPF_ADD, 1), op(retA, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := ebpffilter.Replace(spec, loadtest.Function, body); err != nil {
		t.Fatal(err)
	}
	after := spec.Instructions
	if len(after) != len(before)-2+len(body) {
		t.Fatalf("%d instructions after, %d before, %d of the body", len(after), len(before), len(body))
	}
	first := after[at]
	if first.Symbol() != loadtest.Function || btf.FuncMetadata(&first) == nil || first.Source() == nil || first.OpCode != body[0].OpCode {
		t.Errorf("the function's first instruction is %v", first)
	}
	if last := after[len(after)-3]; last.Symbol() != "another" {
		t.Errorf("after the function comes %v", last)
	}
	if body[0].Symbol() != "" {
		t.Error("the body itself was changed")
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer func() { _ = program.Close() }()
	if got, err := loadtest.Run(program, frame(), 0); got != 21+42 || err != nil {
		t.Errorf("runs to %d, %v", got, err)
	}
}

// TestReplaceAgain replaces a function twice, as for another filter.
func TestReplaceAgain(t *testing.T) {
	spec, at := withAnother()
	for range 2 {
		for _, k := range []uint32{5, 6} {
			body, err := ebpffilter.Translate(bpfprog.Program{op(ldb, 20), op(ret, k)})
			if err != nil {
				t.Fatal(err)
			}
			if err := ebpffilter.Replace(spec, loadtest.Function, body); err != nil {
				t.Fatal(err)
			}
			if got := spec.Instructions[at+len(body)-2]; got.Constant != int64(k) || len(spec.Instructions) != at+len(body)+3 {
				t.Errorf("the function ends with %v, the program has %d instructions", got, len(spec.Instructions))
			}
		}
	}
}

func TestReplaceRefuses(t *testing.T) {
	body, err := ebpffilter.Translate(bpfprog.Program{op(ret, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change   func(spec *ebpf.ProgramSpec, info *btf.Func)
		function string
		body     asm.Instructions
		want     string
	}{
		"no such function": {function: "refuses", body: body, want: "replace function refuses: program see does not have it"},
		"no name":          {function: "", body: body, want: "does not have it"},
		"the program":      {function: "see", body: body, want: "it is the program itself"},
		"empty body":       {function: loadtest.Function, want: "the body is empty"},
		"static": {
			change:   func(_ *ebpf.ProgramSpec, info *btf.Func) { info.Linkage = btf.StaticFunc },
			function: loadtest.Function, body: body, want: "static, make it global",
		},
		"no types": {
			change: func(spec *ebpf.ProgramSpec, _ *btf.Func) {
				spec.Instructions[2] = asm.Mov.Imm(asm.R0, 1).WithSymbol(loadtest.Function)
			},
			function: loadtest.Function, body: body, want: "no type information",
		},
		"two arguments": {
			change: func(_ *ebpf.ProgramSpec, info *btf.Func) {
				proto := info.Type.(*btf.FuncProto)
				proto.Params = append(slices.Clone(proto.Params), proto.Params[0])
			},
			function: loadtest.Function, body: body, want: "one argument",
		},
		"another argument": {
			change: func(_ *ebpf.ProgramSpec, info *btf.Func) {
				info.Type.(*btf.FuncProto).Params[0].Type = &btf.Pointer{Target: &btf.Struct{Name: "xdp_md"}}
			},
			function: loadtest.Function, body: body, want: "not a struct __sk_buff *",
		},
		"no result": {
			change:   func(_ *ebpf.ProgramSpec, info *btf.Func) { info.Type.(*btf.FuncProto).Return = &btf.Void{} },
			function: loadtest.Function, body: body, want: "does not return an int",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := loadtest.Spec()
			if tc.change != nil {
				tc.change(spec, btf.FuncMetadata(&spec.Instructions[2]))
			}
			before := spec.Instructions.String()
			err := ebpffilter.Replace(spec, tc.function, tc.body)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(before, spec.Instructions.String()); diff != "" {
				t.Errorf("the program was changed (-before +after):\n%s", diff)
			}
		})
	}
}
