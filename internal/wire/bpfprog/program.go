// Package bpfprog holds compiled packet filters: classic BPF programs, their text form and the kernel's static checks.
// The compiler is internal/operator/pcapfilter, a package of its own, because agents only read programs.
package bpfprog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxInstructions is the longest program that Linux accepts for a socket
// (BPF_MAXINSNS in linux/bpf_common.h).
const MaxInstructions = 4096

// Instruction is one classic BPF instruction, laid out like struct sock_filter
// in linux/filter.h. Jt and Jf count instructions from the next one on.
type Instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// Program is a classic BPF program for SO_ATTACH_FILTER. It returns the number
// of bytes to keep of a packet, 0 refuses it. The nil program accepts everything.
type Program []Instruction

// String returns the program as text on one line: the number of instructions,
// then for each one ",op jt jf k" in decimal, as iptables' bpf match writes it.
// The nil program is "0".
func (p Program) String() string {
	b := strconv.AppendInt(nil, int64(len(p)), 10)
	for _, in := range p {
		b = append(b, ',')
		b = strconv.AppendUint(b, uint64(in.Code), 10)
		b = append(b, ' ')
		b = strconv.AppendUint(b, uint64(in.Jt), 10)
		b = append(b, ' ')
		b = strconv.AppendUint(b, uint64(in.Jf), 10)
		b = append(b, ' ')
		b = strconv.AppendUint(b, uint64(in.K), 10)
	}
	return string(b)
}

// MarshalText makes a Program in JSON or YAML a string in the form of String.
func (p Program) MarshalText() ([]byte, error) {
	return []byte(p.String()), nil
}

// UnmarshalText is the reverse of MarshalText, with the checks of Parse.
func (p *Program) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// Parse reads the form of String and accepts only a program that Validate
// accepts. The empty text is an error, so that a lost filter never becomes one
// that accepts everything; the nil program is "0".
func Parse(text string) (Program, error) {
	head, rest, more := strings.Cut(text, ",")
	count, err := strconv.ParseUint(head, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("parse program length %.20q: want a number of instructions", head)
	}
	if count > MaxInstructions {
		return nil, fmt.Errorf("parse program: %d instructions, at most %d are allowed", count, MaxInstructions)
	}
	if count == 0 && !more {
		return nil, nil
	}
	program := make(Program, 0, count)
	for more {
		if len(program) == int(count) {
			return nil, fmt.Errorf("parse program: more than the announced %d instructions", count)
		}
		var field string
		field, rest, more = strings.Cut(rest, ",")
		in, err := parseInstruction(field)
		if err != nil {
			return nil, fmt.Errorf("parse instruction %d: %w", len(program), err)
		}
		program = append(program, in)
	}
	if len(program) != int(count) {
		return nil, fmt.Errorf("parse program: %d instructions, %d were announced", len(program), count)
	}
	return program, program.Validate()
}

var errInstructionForm = errors.New(`want "op jt jf k" in decimal`)

func parseInstruction(text string) (Instruction, error) {
	parts := strings.Split(text, " ")
	if len(parts) != 4 {
		return Instruction{}, errInstructionForm
	}
	var values [4]uint64
	for i, bits := range [4]int{16, 8, 8, 32} {
		v, err := strconv.ParseUint(parts[i], 10, bits)
		if err != nil {
			return Instruction{}, errInstructionForm
		}
		values[i] = v
	}
	return Instruction{
		Code: uint16(values[0]), Jt: uint8(values[1]), Jf: uint8(values[2]), K: uint32(values[3]),
	}, nil
}
