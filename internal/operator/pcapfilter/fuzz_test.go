package pcapfilter_test

import (
	"testing"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

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
	c := sharedCompiler(f)
	f.Fuzz(func(t *testing.T, expression string, link int32) {
		if link != int32(pcapfilter.LinkRaw) {
			link = int32(pcapfilter.LinkEthernet)
		}
		compileAnything(t, c, expression, pcapfilter.LinkType(link))
		compileIP(t, c)
	})
}
