package filters

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/privileged"
)

// many joins n copies of a text, with their numbers in place of #.
func many(n int, text, by string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(text, "#", fmt.Sprint(i+1))
	}
	return strings.Join(parts, by)
}

// large are filters near the limits of compilation, and those that cost the verifier the most.
var large = map[string]string{
	"ports":                          many(90, "port #7", " or "),
	"hosts":                          many(150, "host 10.0.#.1", " or "),
	"ports that fill the text":       many(345, "port #", " or "),
	"port ranges that fill the text": many(185, "portrange #0-#5", " or "),
	"hosts that fill the text":       many(215, "host 10.0.#.1", " or "),
	"IPv6 hosts":                     many(220, "host fd00::#", " or "),
	"ports in vlan":                  "vlan and (" + many(40, "port #7", " or ") + ")",
	"vlan or not":                    "tcp or vlan and (" + many(40, "port #7", " or ") + ")",
	"vlans in vlans":                 many(30, "vlan", " and ") + " and tcp port 80",
	"ports in geneve":                "geneve and vlan and (" + many(20, "port #7", " or ") + ")",
	"geneve in geneve":               "geneve and geneve and (" + many(20, "port #7", " or ") + ")",
	"many layers":                    "geneve and vlan and vlan and mpls and tcp port 80",
	"sum":                            "ip[" + many(300, "ip[#]", "+") + "] = 1",
	"product":                        "ip[" + many(300, "ip[#]", "*") + "] = 1",
	"bytes behind bytes":             many(40, "(tcp[((tcp[12] & 0xf0) >> 2) + #:4] = 7 or udp[udp[4:2] - #] = 3)", " or "),
	"byte of byte":                   strings.Repeat("ip[", 60) + "1" + strings.Repeat("]", 60) + " = 1",
	"one that is refused":            many(40, "tcp[((tcp[12] & 0xf0) >> 2) + #:4] = 7", " and not "),
}

// mostVerified bounds the instructions that the verifier processes; it gives up after a million. It processes an
// instruction again for each state in which a path reaches it.
const mostVerified = 100_000

func TestLargeInKernel(t *testing.T) {
	privileged.Need(t)
	compiler := sharedCompiler(t)
	for name, text := range large {
		t.Run(name, func(t *testing.T) {
			classic, err := compiler.Compile(t.Context(), text, pcapfilter.LinkEthernet, 0)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := loadtest.Inlined(classic) // also as a function
			if err != nil {
				t.Fatal(err)
			}
			program, err := loadtest.LoadSpec(t, spec)
			if err != nil {
				t.Fatalf("load: %v", err)
			}
			info, err := program.Info()
			if err != nil {
				t.Fatal(err)
			}
			verified, known := info.VerifiedInstructions() // since 5.16
			t.Logf("%d classic instructions, %d translated, %d processed by the verifier", len(classic), len(spec.Instructions), verified)
			if known && verified > mostVerified {
				t.Errorf("the verifier processed %d instructions, want at most %d", verified, mostVerified)
			}
		})
	}
}
