package pcapfilter_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// shared is one compiler for most tests: it takes longer to load than their filters, under the race detector by a second.
var shared = sync.OnceValues(func() (*pcapfilter.Compiler, error) { return pcapfilter.New(pcapfilter.Most) })

func sharedCompiler(tb testing.TB) *pcapfilter.Compiler {
	tb.Helper()
	c, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// newCompiler returns a compiler that the test's end closes.
func newCompiler(tb testing.TB) *pcapfilter.Compiler {
	tb.Helper()
	c, err := pcapfilter.New(pcapfilter.Most)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func TestCompileHandle(t *testing.T) {
	c := sharedCompiler(t)
	for name, tc := range map[string]struct {
		expression string
		link       pcapfilter.LinkType
		snapLen    int
		want       string
	}{
		"ethernet":            {"ip", pcapfilter.LinkEthernet, 0, "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"},
		"snap length":         {"ip", pcapfilter.LinkEthernet, 96, "4,40 0 0 12,21 0 1 2048,6 0 0 96,6 0 0 0"},
		"raw":                 {"ip", pcapfilter.LinkRaw, 0, "5,48 0 0 0,84 0 0 240,21 0 1 64,6 0 0 262144,6 0 0 0"},
		"empty":               {"", pcapfilter.LinkEthernet, 0, "0"},
		"blank":               {" \t\n", pcapfilter.LinkEthernet, 96, "0"},
		"lines":               {"ip\nor\nip", pcapfilter.LinkEthernet, 0, "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"},
		"live: direction":     {"outbound", pcapfilter.LinkEthernet, 0, "4,40 0 0 4294963204,21 0 1 4,6 0 0 262144,6 0 0 0"},
		"live: raw direction": {"outbound", pcapfilter.LinkRaw, 0, "4,40 0 0 4294963204,21 0 1 4,6 0 0 262144,6 0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := c.Compile(t.Context(), tc.expression, tc.link, tc.snapLen)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, program.String()); diff != "" {
				t.Errorf("program (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompileRefusesUnusableHandles(t *testing.T) {
	c := sharedCompiler(t)
	for name, tc := range map[string]struct {
		link    pcapfilter.LinkType
		snapLen int
		want    string
	}{
		"link type":       {113, 0, "link type 113 is not supported"},
		"negative length": {pcapfilter.LinkEthernet, -1, "snap length -1 is out of range"},
		"long length":     {pcapfilter.LinkEthernet, 262145, "snap length 262145 is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Compile(t.Context(), "ip", tc.link, tc.snapLen)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if _, ok := errors.AsType[*pcapfilter.SyntaxError](err); ok {
				t.Error("a wrong link type or length is not a SyntaxError")
			}
		})
	}
}

func TestCompileContextAndClose(t *testing.T) {
	c := newCompiler(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Compile(ended, "ip", pcapfilter.LinkEthernet, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if _, err := c.Compile(t.Context(), "ip", pcapfilter.LinkEthernet, 0); err != nil {
		t.Errorf("an ended context broke the compiler: %v", err)
	}
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compile(t.Context(), "ip", pcapfilter.LinkEthernet, 0); err == nil {
		t.Error("compiled after Close")
	}
}

// TestCompileConcurrently shows that compilations do not mix: each goroutine
// has its own port and must find it in each program.
func TestCompileConcurrently(t *testing.T) {
	c := sharedCompiler(t)
	done := make(chan error)
	for i := range 8 {
		go func() {
			expression := "udp dst port " + string(rune('1'+i))
			for range 20 {
				program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
				if err != nil {
					done <- err
					return
				}
				if !strings.Contains(program.String(), " "+string(rune('1'+i))+",6 0 0 262144") {
					done <- errors.New(expression + " became " + program.String())
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
