package pcapfilter_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

var update = flag.Bool("update", false, "rewrite testdata from the programs of the installed tcpdump (needs root)")

// golden has the programs of tcpdump 4.99.3 with libpcap 1.10.3 for a live veth
// device: lines of expression, tab, program.
var golden = filepath.Join("testdata", "programs.golden")

func TestCompileGolden(t *testing.T) {
	c := sharedCompiler(t)
	want := readGolden(t)
	if len(want) != len(expressions) {
		t.Errorf("%d golden programs for %d expressions: run the test with -update", len(want), len(expressions))
	}
	for _, expression := range expressions {
		t.Run(expression, func(t *testing.T) {
			program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[expression], program.String()); diff != "" {
				t.Errorf("program (-tcpdump +ours):\n%s", diff)
			}
		})
	}
}

// TestGoldenIsTcpdumps compares the golden programs with the installed
// tcpdump's on a live veth device.
func TestGoldenIsTcpdumps(t *testing.T) {
	n := newTestNet(t)
	got := n.tcpdumpPrograms(t, expressions)
	if *update {
		writeGolden(t, got)
	}
	if diff := cmp.Diff(readGolden(t), got); diff != "" {
		t.Errorf("programs (-golden +tcpdump):\n%s", diff)
	}
}

// TestRawIsTcpdumps compares programs for packets without a link-layer header
// with those that the installed tcpdump makes for no device.
func TestRawIsTcpdumps(t *testing.T) {
	needPrivileges(t)
	c := sharedCompiler(t)
	for _, expression := range []string{
		"ip", "ip6", "host 10.0.0.1", "net fd00:1::/32", "tcp port 80", "udp portrange 1000-2000", "icmp6", "ip[8] < 5",
		"tcp[tcpflags] & tcp-syn != 0", "not host 10.0.0.1 and udp", "ip multicast", "greater 1000", "esp or proto 47",
	} {
		t.Run(expression, func(t *testing.T) {
			want, err := exec.CommandContext(t.Context(), "tcpdump", "-ddd", "-y", "RAW", expression).Output()
			if err != nil {
				t.Fatal(err)
			}
			program, err := c.Compile(t.Context(), expression, pcapfilter.LinkRaw, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(programText(want), program.String()); diff != "" {
				t.Errorf("program (-tcpdump +ours):\n%s", diff)
			}
		})
	}
}

func readGolden(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	programs := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		expression, program, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			t.Fatalf("%s: no tab in %q", golden, line)
		}
		programs[expression] = program
	}
	return programs
}

func writeGolden(t *testing.T, programs map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, expression := range expressions {
		text.WriteString(expression + "\t" + programs[expression] + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
