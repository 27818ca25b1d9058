package pcapfilter_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// TestMaskOfAllOnes shows wasm/patches/0001-jset-all-ones.patch: a mask that changes nothing changes no program. Debian's
// libpcap compiles the first expression to a filter that accepts nothing, and the second to one that accepts everything.
func TestMaskOfAllOnes(t *testing.T) {
	c := sharedCompiler(t)
	for expression, plain := range map[string]string{
		"ip[6:2] & 0xffffffff = 0":                   "ip[6:2] = 0",
		"not ip[6:2] & 0xffffffff = 0":               "not ip[6:2] = 0",
		"ip[6:2] & 0xffffffff != 0":                  "ip[6:2] != 0",
		"tcp[4:4] & 0xffffffff = 0":                  "tcp[4:4] = 0",
		"udp and ip[12:4] & 0xffffffff = 0 or arp":   "udp and ip[12:4] = 0 or arp",
		"ip[8] & 0xffffffff = 0 and ip[9] & 255 = 6": "ip[8] = 0 and ip[9] & 255 = 6",
	} {
		t.Run(expression, func(t *testing.T) {
			if diff := cmp.Diff(program(t, c, plain), program(t, c, expression)); diff != "" {
				t.Errorf("program (-plain +masked):\n%s", diff)
			}
		})
	}
}

func program(t *testing.T, c *pcapfilter.Compiler, expression string) string {
	t.Helper()
	program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
	if err != nil {
		t.Fatal(err)
	}
	return program.String()
}

// list joins n copies of a text by "or", with their numbers, from 1, in place of each %d or %x.
func list(n int, text string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(strings.ReplaceAll(strings.ReplaceAll(text, "%d", "%[1]d"), "%x", "%[1]x"), i+1)
	}
	return strings.Join(parts, " or ")
}

// TestLongLists: lists compile to tcpdump's own programs, although wasm/patches/0002-hash-equal-blocks.patch replaces a
// part of libpcap's optimizer.
func TestLongLists(t *testing.T) {
	c := sharedCompiler(t)
	for name, expression := range map[string]string{
		"hosts":       list(200, "host 10.0.%d.1"),
		"IPv6 hosts":  list(200, "host fd00::%x"),
		"nets":        list(190, "net 10.%d.0.0/16"),
		"ports":       list(130, "port %d"),
		"port ranges": list(65, "portrange %d-5%[1]d"),
		"mixed":       list(60, "(host 10.0.%d.1 and tcp port %d) or not udp port %d"),
		"bytes":       list(50, "tcp[((tcp[12] & 0xf0) >> 2) + %d:4] = 7"),
		"equal":       list(100, "(ip[%d] = 3 and port 80)"),
	} {
		t.Run(name, func(t *testing.T) {
			want, err := exec.CommandContext(t.Context(), "tcpdump", "-ddd", "-y", "EN10MB", expression).Output()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(programText(want), program(t, c, expression)); diff != "" {
				t.Errorf("program (-tcpdump +ours):\n%.1000s", diff)
			}
		})
	}
}
