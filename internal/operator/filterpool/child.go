package filterpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/restriction"
)

// Subcommand of the manager's binary that makes it a compiler of filters. A program that makes a Pool calls Child first
// if this is its first argument.
const Subcommand = "compile-filters"

const (
	// childHeap is the Go heap of a child: the translated module, and the rest of the translation.
	childHeap = 24 << 20
	// childData bounds what a child may map for writing after its start: its sandbox, the heap, and as much again.
	childData = 160 << 20
)

// Child compiles what its parent asks for on standard input, until that ends. It returns the exit status. arguments are
// those behind Subcommand: the lane.
func Child(arguments []string) int {
	if err := serve(arguments, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(arguments []string, in io.Reader, out io.Writer) error {
	l, err := laneOf(arguments)
	if err != nil {
		return err
	}
	inForce, err := confine(l.niceness)
	if err != nil {
		return err
	}
	compiler, err := pcapfilter.New(l.limits)
	if err == nil {
		err = compiler.Load(context.Background())
	}
	if err != nil {
		return errors.Join(err, writeFrame(out, answer{Failure: err.Error()}))
	}
	debug.FreeOSMemory() // the translation of the module leaves most of the heap as garbage
	if err := writeFrame(out, answer{Restrictions: inForce}); err != nil {
		return err
	}
	for {
		var r request
		switch err := readFrame(in, &r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := writeFrame(out, compile(compiler, r)); err != nil {
			return err
		}
	}
}

func compile(compiler *pcapfilter.Compiler, r request) answer {
	program, err := compiler.Compile(context.Background(), r.Expression, r.Link, r.SnapLen)
	if syntax, ok := errors.AsType[*pcapfilter.SyntaxError](err); ok {
		return answer{Refusal: &refusal{Message: syntax.Message, Offset: syntax.Offset, Exhausted: syntax.Exhausted}}
	}
	if err != nil {
		return answer{Failure: err.Error()}
	}
	return answer{Program: program}
}

// confine takes from the process what a compiler does not need. It returns what the kernel's Landlock contributes: a kernel
// without it leaves the manager's files to the WebAssembly sandbox alone.
func confine(niceness int) (restriction.InForce, error) {
	debug.SetMemoryLimit(childHeap)
	data, err := mapped()
	if err != nil {
		return restriction.InForce{}, err
	}
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_NOFILE, 16}, {unix.RLIMIT_DATA, data + childData},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return restriction.InForce{}, fmt.Errorf("limit the filter compiler's resource %d to %d: %w", l.resource, l.most, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return restriction.InForce{}, fmt.Errorf("drop the filter compiler's way to more privileges: %w", err)
	}
	// A manager that is nicer already may not take this back, and its child is as nice. The process has a group of its own.
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, niceness); err != nil && !errors.Is(err, unix.EACCES) {
		return restriction.InForce{}, fmt.Errorf("set the filter compiler's niceness to %d: %w", niceness, err)
	}
	inForce, err := restriction.Apply()
	if err != nil {
		inForce.Why = err.Error()
	}
	return inForce, nil
}

// mapped returns what this process has mapped for writing, in bytes.
func mapped() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read the filter compiler's memory: %w", err)
	}
	var size, resident, shared, code, libraries, data uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared, &code, &libraries, &data); err != nil {
		return 0, fmt.Errorf("read the filter compiler's memory: %w", err)
	}
	return data * uint64(os.Getpagesize()), nil
}
