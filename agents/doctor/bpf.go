package doctor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

const (
	// self is this program's executable.
	self = "/proc/self/exe"
	// function is a function of the kernel that only BPF's tests call.
	function = "bpf_fentry_test1"
	// tracepoint is one that the tracer uses.
	tracepoint = "sys_exit"
)

func types() error {
	if _, err := btf.LoadKernelSpec(); err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	return nil
}

func taskStorage() error   { return features.HaveMapType(ebpf.TaskStorage) }
func socketStorage() error { return features.HaveMapType(ebpf.SkStorage) }
func ringBuffer() error    { return features.HaveMapType(ebpf.RingBuf) }

// attached loads a program that only returns, attaches it, and removes it.
func attached(spec *ebpf.ProgramSpec, attach func(*ebpf.Program) (link.Link, error)) error {
	spec.Name, spec.License = "sonde_doctor", "GPL"
	spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return fmt.Errorf("load: %w", root(err))
	}
	defer program.Close()
	l, err := attach(program)
	if err != nil {
		return fmt.Errorf("attach: %w", root(err))
	}
	return l.Close()
}

// root returns the cause of an error, without the library's advice and generated names.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func tracing(p *ebpf.Program) (link.Link, error) {
	return link.AttachTracing(link.TracingOptions{Program: p})
}

func typedTracepoint() error {
	return attached(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint}, tracing)
}

func functionEntry() error {
	return attached(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: function}, tracing)
}

func rawTracepoint() error {
	return attached(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint}, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	})
}

func iterator() error {
	return attached(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task"}, func(p *ebpf.Program) (link.Link, error) {
		return link.AttachIter(link.IterOptions{Program: p})
	})
}

func kprobe() error {
	return attached(&ebpf.ProgramSpec{Type: ebpf.Kprobe}, func(p *ebpf.Program) (link.Link, error) {
		return link.Kprobe(function, p, nil)
	})
}

// uprobe attaches to this program's entry point, which does not run again.
func uprobe() error {
	at, err := entry(self)
	if err != nil {
		return err
	}
	return attached(&ebpf.ProgramSpec{Type: ebpf.Kprobe}, func(p *ebpf.Program) (link.Link, error) {
		executable, err := link.OpenExecutable(self)
		if err != nil {
			return nil, err
		}
		return executable.Uprobe("entry", p, &link.UprobeOptions{Address: at, PID: os.Getpid()})
	})
}

// entry returns the offset of a program's entry point in its file.
func entry(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read own program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= f.Entry && f.Entry < p.Vaddr+p.Filesz {
			return f.Entry - p.Vaddr + p.Off, nil
		}
	}
	return 0, errors.New("own program has no entry point")
}
