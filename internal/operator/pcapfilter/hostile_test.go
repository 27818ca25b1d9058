package pcapfilter_test

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// repeat joins as many copies of part, each formatted with its number, as fit
// into a filter together with the end.
func repeat(part, end string) string {
	var text strings.Builder
	for i := 1; ; i++ {
		next := part
		if strings.Contains(part, "%") {
			next = fmt.Sprintf(part, i)
		}
		if text.Len()+len(next)+len(end) > pcapfilter.MaxExpressionBytes {
			return text.String() + end
		}
		text.WriteString(next)
	}
}

// hostile filters must end as a SyntaxError with the given text.
var hostile = map[string]struct{ expression, want string }{
	"1 MB":                  {strings.Repeat("tcp or ", 150_000) + "udp", "too long: 1050003 bytes, at most 4096"},
	"one byte too many":     {strings.Repeat(" ", 4094) + "tcp", "too long: 4097 bytes"},
	"parentheses":           {strings.Repeat("(", 4096), "syntax error"},
	"closing parentheses":   {strings.Repeat(")", 4096), "syntax error"},
	"nots":                  {strings.Repeat("not ", 1024), "syntax error"},
	"brackets":              {repeat("ip[", ""), "syntax error"},
	"deep byte offsets":     {strings.Repeat("ip[", 800) + "0" + strings.Repeat("]", 800) + " = 1", ""},
	"deep arithmetic":       {"len = " + strings.Repeat("(1+", 1000) + "len" + strings.Repeat(")", 1000), ""},
	"many ports":            {"port " + list(500, "%d"), "too complex"},
	"many hosts":            {repeat("host 10.0.%d.1 or ", "ip"), ""},
	"many port ranges":      {repeat("portrange 1-%d or ", "tcp"), ""},
	"many IPv6 hosts":       {repeat("not host fd00::%x and ", "ip6"), ""},
	"ands of contradiction": {repeat("port %d and ", "arp"), ""},
	"ethernet addresses":    {repeat("ether host 02:00:00:00:00:%02x or ", "ip"), ""},
	"NUL":                   {"tcp\x00 or udp", "NUL byte"},
	"broken UTF-8":          {"host \xff\xfe", "not valid UTF-8"},
	"format string":         {strings.Repeat("%s%n%x", 600), "syntax error"},
	"format string in name": {`host \%s%n%s%n`, `host name "%s%n%s%n" cannot be resolved`},
	"long number":           {"len = " + strings.Repeat("9", 4000), "number 9999"},
	"long hex number":       {"len = 0x" + strings.Repeat("f", 4000), "number 0xffff"},
	"long name":             {"host " + strings.Repeat("a", 4000), "a word of 4000 bytes"},
	"long MAC":              {strings.Repeat("02:", 1300) + "02", ""},
	"long IPv6":             {"host " + strings.Repeat("fd00:", 800) + ":1", ""},
	"dots":                  {strings.Repeat("1.", 2000) + "1", ""},
	"backslashes":           {strings.Repeat(`\`, 4096), ""},
	"control characters":    {"host \x1b[2J\x07\r\n\x01", "syntax error"},
	"other script":          {"хост 10.0.0.1", "not ASCII"},
	"shell":                 {"$(reboot) `reboot`", "syntax error"},
}

// TestHostileFilters compiles malicious filters. Each must end in time with a
// SyntaxError, and leave no memory in use and a working compiler.
func TestHostileFilters(t *testing.T) {
	c := newCompiler(t)
	compileIP(t, c)
	debug.FreeOSMemory()
	before := residentBytes(t)
	for name, tc := range hostile {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if tc.want != "" {
				if got := syntaxError(t, c, tc.expression); !strings.Contains(got.Message, tc.want) {
					t.Errorf("message %q does not contain %q", got.Message, tc.want)
				}
			} else {
				compileAnything(t, c, tc.expression, pcapfilter.LinkEthernet)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			compileIP(t, c)
		})
	}
	debug.FreeOSMemory()
	if grown := residentBytes(t) - before; grown > 16<<20 {
		t.Errorf("the process grew by %d bytes", grown)
	}
}

// compileAnything asserts that a text becomes a valid program or a SyntaxError.
func compileAnything(t *testing.T, c *pcapfilter.Compiler, expression string, link pcapfilter.LinkType) {
	t.Helper()
	program, err := c.Compile(t.Context(), expression, link, 0)
	if err != nil {
		syntax, ok := errors.AsType[*pcapfilter.SyntaxError](err)
		if !ok {
			t.Fatalf("internal error: %v", err)
		}
		checkMessage(t, syntax)
		return
	}
	if err := program.Validate(); err != nil {
		t.Errorf("invalid program: %v", err)
	}
}

// compileIP shows that the compiler still works.
func compileIP(t *testing.T, c *pcapfilter.Compiler) {
	t.Helper()
	program, err := c.Compile(t.Context(), "ip", pcapfilter.LinkEthernet, 0)
	if err != nil || program.String() != "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0" {
		t.Fatalf("compiling ip afterwards gave %v, %v", program, err)
	}
}

// residentBytes is the memory that the process holds, from /proc/self/statm.
func residentBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
