// Package loadtest loads translated filters into the kernel and runs them on packets, for tests. It bounds their number: some
// kernels (6.18) hang when about a thousand programs are waiting to be freed.
package loadtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

const (
	// maxLoads bounds the programs of a test process.
	maxLoads = 320
	// burst programs are loaded without a pause.
	burst = 10
	pause = 20 * time.Millisecond
)

var loads atomic.Int32

// Loads is how many programs this process has loaded.
func Loads() int { return int(loads.Load()) }

// Function is the name of the function in Spec to replace.
const Function = "accepts"

// Spec returns a program at tc as a compiler makes it. It returns the result of its global function accepts(skb).
func Spec() *ebpf.ProgramSpec {
	result := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	packet := &btf.Pointer{Target: &btf.Struct{Name: "__sk_buff"}}
	proto := &btf.FuncProto{Return: result, Params: []btf.FuncParam{{Name: "skb", Type: packet}}}
	function := func(first asm.Instruction, name string) asm.Instruction {
		return btf.WithFuncMetadata(first.WithSymbol(name), &btf.Func{Name: name, Type: proto, Linkage: btf.GlobalFunc}).
			WithSource(asm.Comment(name))
	}
	return &ebpf.ProgramSpec{
		Name: "see", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			function(asm.Call.Label(Function), "see"),
			asm.Return(),
			function(asm.Mov.Imm(asm.R0, 1), Function),
			asm.Return(),
		},
	}
}

// SpecInline returns a program that calls the function, too, but always returns 1.
func SpecInline() *ebpf.ProgramSpec {
	spec := Spec()
	first := spec.Instructions[0]
	begin := btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1).WithSymbol(first.Symbol()), btf.FuncMetadata(&first)).WithSource(first.Source())
	spec.Instructions = append(asm.Instructions{
		begin, asm.Call.Label(Function), asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R0, 1), asm.Return(),
	}, spec.Instructions[2:]...)
	return spec
}

// Inlined is SpecInline with an inlined filter. It returns 1 if the filter accepts a packet, else 0.
func Inlined(filter bpfprog.Program, options ...ebpffilter.Option) (*ebpf.ProgramSpec, error) {
	body, err := ebpffilter.Translate(filter, options...)
	if err != nil {
		return nil, err
	}
	spec := SpecInline()
	if err := ebpffilter.Replace(spec, Function, body); err != nil {
		return nil, err
	}
	return spec, ebpffilter.Inline(spec, Function, filter, 0, options...)
}

// Load loads a filter's body as the function of a program at tc. The program is closed at the end of the test; a caller with
// many programs should close each earlier.
func Load(t *testing.T, body asm.Instructions) (*ebpf.Program, error) {
	t.Helper()
	spec := Spec()
	if err := ebpffilter.Replace(spec, Function, body); err != nil {
		return nil, err
	}
	return LoadSpec(t, spec)
}

// LoadSpec loads a program of Spec or SpecInline.
func LoadSpec(t *testing.T, spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
	t.Helper()
	n := loads.Add(1)
	if n > maxLoads {
		return nil, fmt.Errorf("this process has loaded %d programs, which is the limit", maxLoads)
	}
	if n%burst == 0 {
		time.Sleep(pause)
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = program.Close() })
	return program, nil
}

// Run runs the program on an Ethernet frame with this mark, and returns its result.
func Run(program *ebpf.Program, frame []byte, mark uint32) (uint32, error) {
	return program.Run(&ebpf.RunOptions{Data: frame, Context: struct{ Len, Type, Mark uint32 }{Mark: mark}})
}
