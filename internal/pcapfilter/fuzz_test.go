package pcapfilter_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/pcapfilter"
)

// FuzzParseProgram: what is accepted is valid and comes back the same.
func FuzzParseProgram(f *testing.F) {
	for _, seed := range []string{"", "0", ipText, "1,6 0 0 0", "2,5 0 0 0,6 0 0 1", "2,21 255 255 1,6 0 0 0", "65536,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		program, err := pcapfilter.ParseProgram(text)
		if err != nil {
			return
		}
		if err := program.Validate(); err != nil {
			t.Fatalf("accepted an invalid program: %v", err)
		}
		again, err := pcapfilter.ParseProgram(program.String())
		if err != nil {
			t.Fatalf("refused its own text: %v", err)
		}
		if diff := cmp.Diff(program, again); diff != "" {
			t.Errorf("program (-first +second):\n%s", diff)
		}
	})
}

// FuzzCompile: any text becomes a valid program or a SyntaxError, and the
// compiler works as before afterwards.
func FuzzCompile(f *testing.F) {
	for _, expression := range expressions {
		f.Add(expression, int32(pcapfilter.LinkEthernet))
		f.Add(expression, int32(pcapfilter.LinkRaw))
	}
	for _, tc := range hostile {
		if len(tc.expression) <= pcapfilter.MaxExpressionBytes {
			f.Add(tc.expression, int32(pcapfilter.LinkEthernet))
		}
	}
	c := newCompiler(f)
	f.Fuzz(func(t *testing.T, expression string, link int32) {
		if link != int32(pcapfilter.LinkRaw) {
			link = int32(pcapfilter.LinkEthernet)
		}
		program, err := c.Compile(t.Context(), expression, pcapfilter.LinkType(link), 0)
		var syntax *pcapfilter.SyntaxError
		switch {
		case err == nil:
			if err := program.Validate(); err != nil {
				t.Errorf("invalid program: %v", err)
			}
		case errors.As(err, &syntax):
			checkMessage(t, syntax)
		default:
			t.Errorf("internal error: %v", err)
		}
		compileIP(t, c)
	})
}
