package pcapfilter

import "github.com/sonde-operator/sonde/internal/wire/bpfprog"

// MaxInstructions is the longest program that Linux accepts for a socket.
const MaxInstructions = bpfprog.MaxInstructions

// Program is what Compile makes. It and Instruction live in a package without the compiler, for the agents that only
// run programs.
type Program = bpfprog.Program

// Instruction is one instruction of a Program.
type Instruction = bpfprog.Instruction

// ParseProgram reads the text form of a Program; see bpfprog.ParseProgram.
func ParseProgram(text string) (Program, error) { return bpfprog.ParseProgram(text) }
