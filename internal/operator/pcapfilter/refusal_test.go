package pcapfilter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// syntaxError compiles an expression that must be refused.
func syntaxError(t *testing.T, c *pcapfilter.Compiler, expression string) *pcapfilter.SyntaxError {
	t.Helper()
	program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
	syntax, ok := errors.AsType[*pcapfilter.SyntaxError](err)
	if !ok {
		t.Fatalf("compiling %.60q gave %.60v, error %v; want a SyntaxError", expression, program, err)
	}
	checkMessage(t, syntax)
	return syntax
}

// checkMessage asserts that an error can be shown as it is.
func checkMessage(t *testing.T, err *pcapfilter.SyntaxError) {
	t.Helper()
	if len(err.Message) == 0 || len(err.Message) > 512 || !utf8.ValidString(err.Message) {
		t.Errorf("message %q has %d bytes", err.Message, len(err.Message))
	}
	if strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("error %q has control characters", err.Error())
	}
	if strings.ContainsFunc(err.Error(), func(c rune) bool { return c > unicode.MaxASCII }) {
		t.Errorf("error %q has characters that may be invisible", err.Error())
	}
	if len(err.Expression) > pcapfilter.MaxExpressionBytes {
		t.Errorf("the error holds %d bytes of expression", len(err.Expression))
	}
}

func TestNamesAreRefusedWithTheFormToUse(t *testing.T) {
	c := sharedCompiler(t)
	for expression, want := range map[string]string{
		"host db.example":        `at character 6: host name "db.example" cannot be resolved here: use the address, e.g. host 10.0.0.1`,
		"src host db and tcp":    `at character 10: host name "db" cannot be resolved here: use the address, e.g. host 10.0.0.1`,
		"ip6 host db":            `at character 10: host name "db" cannot be resolved here: use the address, e.g. host 10.0.0.1`,
		"tcp or host localhost":  `at character 13: host name "localhost" cannot be resolved here: use the address, e.g. host 10.0.0.1`,
		"port http":              `at character 6: service name "http" cannot be resolved here: use its number, e.g. port 80`,
		"tcp dst port https":     `at character 14: service name "https" cannot be resolved here: use its number, e.g. port 443`,
		"udp port no-such-thing": `at character 10: service name "no-such-thing" cannot be resolved here: use its number, e.g. port 8080`,
		"portrange 20-ftp":       `at character 11: service name "ftp" cannot be resolved here: use its number, e.g. port 21`,
		"net backbone":           `at character 5: network name "backbone" cannot be resolved here: use the address, e.g. net 10.0.0.0/8`,
		"ether host gateway-mac": `at character 12: ethernet name "gateway-mac" cannot be resolved here: use the address, e.g. ether host 02:00:00:00:00:01`,
	} {
		t.Run(expression, func(t *testing.T) {
			if diff := cmp.Diff(want, syntaxError(t, c, expression).Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNumbersInPlaceOfNames shows that numbers that look like names work as in
// tcpdump.
func TestNumbersInPlaceOfNames(t *testing.T) {
	c := sharedCompiler(t)
	for odd, plain := range map[string]string{
		`host \10.0.0.1`:     "host 10.0.0.1",
		`port \80`:           "port 80",
		`ip6 host \fd00::1`:  "ip6 host fd00::1",
		"ip proto OSPFIGP":   "ip proto 89",
		"ip proto ipv6-icmp": "ip proto 58",
		"ip proto RSPF":      "ip proto 73",
	} {
		t.Run(odd, func(t *testing.T) {
			var programs [2]bpfprog.Program
			for i, expression := range []string{odd, plain} {
				program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
				if err != nil {
					t.Fatal(err)
				}
				programs[i] = program
			}
			if diff := cmp.Diff(programs[1], programs[0]); diff != "" {
				t.Errorf("program (-plain +odd):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	c := sharedCompiler(t)
	for expression, want := range map[string]string{
		"tcp and":                    "syntax error at the end: see pcap-filter(7)",
		"tcp port":                   "syntax error at the end: see pcap-filter(7)",
		"ip proto icmp":              `at character 10: can't parse filter expression: syntax error at "icmp": see pcap-filter(7), e.g. tcp port 80; keywords used as values need a backslash, e.g. ip proto \icmp`,
		"tcp.port == 80":             `syntax error at "tcp.port": this is a display filter of Wireshark's; a capture filter is another language, pcap-filter(7), e.g. tcp port 80`,
		"!(http.request)":            "a capture filter is another language",
		"gateway 10.0.0.1":           "use ether host and the gateway's MAC address",
		"gateway snup":               "use ether host and the gateway's MAC address",
		"ip broadcast":               "use ether broadcast",
		"port 65536":                 "illegal port number 65536 > 65535",
		"host 10.0.0.256":            "invalid IPv4 address '10.0.0.256'",
		"net 10.0.0.1/24":            `non-network bits set in "10.0.0.1/24"`,
		"net 10.0.0.0/33":            "mask length must be <= 32",
		"host 02:00:00:00:00:01":     "ethernet address used in non-ether expression",
		"vlan 5000":                  "VLAN tag 5000 greater than maximum 4095",
		"mpls 1048576":               "MPLS label 1048576 greater than maximum 1048575",
		"wlan addr1 2:0:0:0:0:1":     "802.11",
		"ip proto no-such-protocol":  "unknown ip proto 'no-such-protocol'",
		"tcp and udp":                "expression rejects all packets",
		"ip6 protochain 6":           "protochain cannot run in the kernel: use ip6 proto",
		"geneve or tcp":              "write it before them (tcp or geneve, not geneve or tcp), join it to them by and (geneve and tcp)",
		"geneve 1 or geneve 2":       "the kernel would refuse the program of this filter",
		"not geneve and port 53":     "the kernel would refuse the program of this filter",
		"vlan and pppoes":            "match the outer header alone (udp port 6081, ether proto 0x8864)",
		"tcp[0:3] = 1":               "data size must be 1, 2, or 4",
		"ip[0] / 0 = 1":              "division by zero",
		"len = 99999999999999999999": "number 99999999999999999999 overflows 32 bits",
		"tcp port 80; rm -rf /":      "syntax error",
		"bcc":                        "supported only on raw ATM",
	} {
		t.Run(expression, func(t *testing.T) {
			if got := syntaxError(t, c, expression); !strings.Contains(got.Message, want) {
				t.Errorf("message %q does not contain %q", got.Message, want)
			}
		})
	}
}

// The kernel accepts the alternatives that a refusal suggests.
func TestSuggestedFiltersCompile(t *testing.T) {
	c := sharedCompiler(t)
	for _, expression := range []string{
		"tcp or geneve", "geneve and tcp", "geneve and (tcp or udp)", "port 53 and not geneve", "vlan and udp port 6081",
		"vlan and ether proto 0x8864",
	} {
		if _, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0); err != nil {
			t.Error(err)
		}
	}
}

func TestSyntaxErrorText(t *testing.T) {
	c := sharedCompiler(t)
	err := error(syntaxError(t, c, "host\ndb"+strings.Repeat("b", 100)))
	want := fmt.Sprintf(`filter "host\ndb%s...": at character 6: host name "db%s" cannot be resolved here: use the address, e.g. host 10.0.0.1`,
		strings.Repeat("b", 70), strings.Repeat("b", 100))
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if errors.Unwrap(err) != nil {
		t.Error("a SyntaxError wraps another error")
	}
}

// TestErrorsNameThePlace: users find the mistake in a long expression, also if it is invisible.
func TestErrorsNameThePlace(t *testing.T) {
	c := sharedCompiler(t)
	for expression, want := range map[string]string{
		"tcp prot 80":                       `filter "tcp prot 80": at character 5: can't parse filter expression: syntax error at "prot"`,
		"tcp and\n":                         `filter "tcp and\n": at character 9: can't parse filter expression: syntax error at the end`,
		"port 65536 or tcp":                 `at character 6: illegal port number 65536 > 65535`,
		"udp or net 10.0.0.1/24":            `at character 12: non-network bits set in "10.0.0.1/24"`,
		"tcp[0:3] = 1":                      `at character 8: data size must be 1, 2, or 4`,
		"tcp and udp":                       `filter "tcp and udp": expression rejects all packets`,
		"tcp \x1b":                          `at character 5: can't parse filter expression: syntax error at "\x1b"`,
		"host\u00a010.0.0.1":                `filter "host\u00a010.0.0.1": at character 5: "\u00a0" is not ASCII, and means nothing in a filter: it is a no-break space: type a blank`,
		"\ufefftcp":                         `filter "\ufefftcp": at character 1: "\ufeff" is not ASCII, and means nothing in a filter: it is a byte order mark: remove it`,
		"tcp \u0430nd udp":                  `filter "tcp \u0430nd udp": at character 5: "\u0430" is not ASCII, and means nothing in a filter: type this part again`,
		"tcp \u0430\u0430 \u00a0":           `at character 5: "\u0430"`,
		"host " + strings.Repeat("a", 4000): "at character 6: a word of 4000 bytes is longer than any",
		list(150, "host 10.0.%d.1") + " or tcp prot 80":                            `10.0.149.1 or host 10.0.150.1 or tcp prot 80": at character 2747: can't parse filter expression: syntax error at "prot"`,
		strings.Repeat("tcp or ", 200) + "\u00a0" + strings.Repeat(" or udp", 200): `or tcp or \u00a0 or udp`,
	} {
		t.Run(text.Truncate(expression, 30), func(t *testing.T) {
			err := syntaxError(t, c, expression)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got  %s\nwant %s", err, want)
			}
		})
	}
}
