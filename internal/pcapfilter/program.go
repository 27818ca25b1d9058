package pcapfilter

import "github.com/sonde-operator/sonde/internal/bpfprog"

// MaxInstructions is the longest program that Linux accepts for a socket.
const MaxInstructions = bpfprog.MaxInstructions

// Program and Instruction are what Compile makes. They live in a package of their own, without the compiler, for the
// agents that only run them.
type (
	Program     = bpfprog.Program
	Instruction = bpfprog.Instruction
)

// ParseProgram reads the text form of a Program; see bpfprog.ParseProgram.
func ParseProgram(text string) (Program, error) { return bpfprog.ParseProgram(text) }
