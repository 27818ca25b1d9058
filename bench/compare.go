package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// agreement is how far the ratios of two runs may lie apart.
const agreement = 0.15

var errDisagree = errors.New("the two runs do not agree: measure again, with nothing else running on the machine")

func runCompare(_ context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New(usage)
	}
	a, err := readResults(args[0])
	if err != nil {
		return err
	}
	b, err := readResults(args[1])
	if err != nil {
		return err
	}
	return compare(os.Stdout, a, b)
}

// compare prints the ratios of two runs side by side, and returns an error when some lie too far apart.
func compare(w io.Writer, a, b *results) error {
	compared, apart := 0, 0
	for i := range scenarios {
		s := &scenarios[i]
		one, two := medianOf(a.ratios(s, engineMain)), medianOf(b.ratios(s, engineMain))
		if s.misses || one <= 0 || two <= 0 {
			continue // a difference near to nothing has no ratio
		}
		compared++
		off := math.Abs(one/two - 1)
		verdict := "agree"
		if off > agreement {
			verdict = "DIFFER"
			apart++
		}
		fmt.Fprintf(w, "%-24s Sonde / tcpdump -B 65536: %.2f and %.2f, %4.1f %% apart: %s\n", place(s), one, two, 100*off, verdict)
	}
	switch {
	case compared == 0:
		return errors.New("the two runs have no scenario in common")
	case apart > 0:
		return errDisagree
	}
	return nil
}
