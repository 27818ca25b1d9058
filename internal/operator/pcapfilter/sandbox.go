package pcapfilter

import (
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// artifacts holds libpcap.wasm once `make pcapfilter` has built it. The folder
// also holds its sources, so that a clean clone compiles without it.
//
//go:embed all:wasm
var artifacts embed.FS

const (
	// instructionBytes is sizeof(struct bpf_insn).
	instructionBytes = 8
	// maxText bounds the length of a text read from the sandbox, in bytes.
	maxText = 1024
	// resultWords is the number of 32-bit words of `result` in wasm/shim.c.
	resultWords = 10
)

func readModule(files fs.FS) ([]byte, error) {
	binary, err := fs.ReadFile(files, "wasm/libpcap.wasm")
	if err != nil {
		return nil, fmt.Errorf("read the filter compiler: libpcap.wasm is missing from this binary, run make pcapfilter and build again: %w", err)
	}
	return binary, nil
}

// sandbox is libpcap's compiled module. Each compilation runs in an instance of its own, so that no state survives it.
type sandbox struct {
	steps   uint32
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

func newSandbox(ctx context.Context, binary []byte, limits Limits) (*sandbox, error) {
	config := wazero.NewRuntimeConfig().
		WithMemoryLimitPages(limits.MemoryPages).
		WithDebugInfoEnabled(false)
	runtime := wazero.NewRuntimeWithConfig(ctx, config)
	compiled, err := runtime.CompileModule(ctx, binary)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the filter compiler: %w", err), runtime.Close(ctx))
	}
	return &sandbox{steps: limits.Steps, runtime: runtime, module: compiled}, nil
}

func (s *sandbox) close(ctx context.Context) error {
	if err := s.runtime.Close(ctx); err != nil {
		return fmt.Errorf("close the filter compiler: %w", err)
	}
	return nil
}

// result of a compilation, as in wasm/shim.c.
type result struct {
	// errorText is libpcap's; lookupName the name that it could not look up.
	errorText, lookupName string
	lookup                lookup
	// instructions is the address of the program, length its instructions.
	instructions, length uint32
	// steps is the unused part of Limits.Steps.
	steps uint32
	// token and tokenEnd enclose what libpcap's scanner read last, as bytes of the expression. Both are equal at its end.
	token, tokenEnd uint32
}

// compile runs one compilation. The expression is at most MaxExpressionBytes
// long and has no NUL.
func (s *sandbox) compile(ctx context.Context, expression string, link LinkType, snapLen int) (bpfprog.Program, error) {
	instance, err := s.runtime.InstantiateModule(
		experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(allocateMemory)), s.module,
		wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		return nil, fmt.Errorf("start the filter compiler: %w", err)
	}
	// Closing frees the memory and cannot fail: the instance has no files.
	defer func() { _ = instance.Close(ctx) }()

	input, err := call(ctx, instance, "input")
	if err != nil {
		return nil, err
	}
	if !instance.Memory().Write(input, append([]byte(expression), 0)) {
		return nil, errOutside
	}
	where, err := call(ctx, instance, "result")
	if err != nil {
		return nil, err
	}
	status, trap := call(ctx, instance, "compile",
		api.EncodeI32(int32(link)), api.EncodeI32(int32(snapLen)), uint64(s.steps))
	res, err := readResult(instance.Memory(), where)
	if err != nil {
		return nil, err
	}
	if trap != nil || status != 0 {
		return nil, refusal(expression, res, trap)
	}
	if res.length > bpfprog.MaxInstructions {
		return nil, newSyntaxError(expression, "filter is too complex: it needs %d instructions, the kernel takes at most %d: %s",
			res.length, bpfprog.MaxInstructions, shorter)
	}
	return readProgram(instance.Memory(), res)
}

// errOutside means that libpcap.wasm and this file are of different versions, or that an expression made libpcap overwrite
// its own memory.
var errOutside = errors.New("read the filter compiler's memory: address out of bounds")

// call calls an exported function that returns one 32-bit word.
func call(ctx context.Context, instance api.Module, name string, args ...uint64) (uint32, error) {
	results, err := instance.ExportedFunction(name).Call(ctx, args...)
	if err != nil {
		return 0, fmt.Errorf("call the filter compiler's %s: %w", name, err)
	}
	return api.DecodeU32(results[0]), nil
}

func readResult(memory api.Memory, at uint32) (result, error) {
	raw, ok := memory.Read(at, resultWords*4)
	if !ok {
		return result{}, errOutside
	}
	var words [resultWords]uint32
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[i*4:])
	}
	text, ok := readString(memory, words[0], words[1])
	if !ok {
		return result{}, errOutside
	}
	name, ok := readString(memory, words[2], words[3])
	if !ok {
		return result{}, errOutside
	}
	return result{
		errorText: text, lookupName: name, lookup: lookup(words[4]),
		instructions: words[5], length: words[6], steps: words[7], token: words[8], tokenEnd: words[9],
	}, nil
}

// readString reads a C string out of a buffer of the given size.
func readString(memory api.Memory, at, size uint32) (string, bool) {
	raw, ok := memory.Read(at, min(size, maxText))
	text, _, _ := strings.Cut(string(raw), "\x00")
	return text, ok
}

func readProgram(memory api.Memory, res result) (bpfprog.Program, error) {
	raw, ok := memory.Read(res.instructions, res.length*instructionBytes)
	if !ok {
		return nil, errOutside
	}
	program := make(bpfprog.Program, res.length)
	for i := range program {
		in := raw[i*instructionBytes:]
		program[i] = bpfprog.Instruction{
			Code: binary.LittleEndian.Uint16(in), Jt: in[2], Jf: in[3], K: binary.LittleEndian.Uint32(in[4:]),
		}
	}
	return program, nil
}
