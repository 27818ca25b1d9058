package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCompilerOutput(t *testing.T) {
	for name, tc := range map[string]struct {
		lines       []string
		wantSummary string
		wantTail    string
	}{
		"downloading": {
			lines:       []string{"go: downloading k8s.io/api v0.36.3", "go: downloading k8s.io/kubectl v0.36.3"},
			wantSummary: "2 modules downloaded",
		},
		"compiling": {
			lines:       []string{"go: downloading k8s.io/api v0.36.3", "internal/abi", "k8s.io/api/core/v1"},
			wantSummary: "2 packages compiled",
		},
		"failing": {
			lines:       []string{"internal/abi", "# example.test/m", "./main.go:3:1: syntax error"},
			wantSummary: "1 packages compiled",
			wantTail:    "# example.test/m\n./main.go:3:1: syntax error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o compilerOutput
			o.read(strings.NewReader(strings.Join(tc.lines, "\n")))
			if got := o.summary(); got != tc.wantSummary {
				t.Errorf("summary %q, want %q", got, tc.wantSummary)
			}
			if got := o.tail(); got != tc.wantTail {
				t.Errorf("tail %q, want %q", got, tc.wantTail)
			}
		})
	}
}

func TestCompilerOutputKeepsTheEnd(t *testing.T) {
	var o compilerOutput
	for i := range 3 * keptLines {
		o.add(fmt.Sprintf("error: %d", i))
	}
	lines := strings.Split(o.tail(), "\n")
	if len(lines) != keptLines || lines[keptLines-1] != fmt.Sprintf("error: %d", 3*keptLines-1) {
		t.Errorf("kept %d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

func TestLinkReplaces(t *testing.T) {
	l := layout{base: t.TempDir()}
	set := t.TempDir()
	for _, key := range []string{"old", "new", "new"} {
		r := recipe{binary: binary{name: "kube", links: []string{"kubelet", "kubectl"}}, key: key}
		if err := r.link(l, set); err != nil {
			t.Fatal(err)
		}
		for _, name := range r.links {
			target, err := os.Readlink(filepath.Join(set, name))
			if err != nil || target != r.stored(l) {
				t.Errorf("%s points to %q (%v), want %q", name, target, err, r.stored(l))
			}
		}
	}
}

func TestProgressIsNeverSilent(t *testing.T) {
	out := make(lineChannel, 100)
	p := newProgress(out)
	stop := p.during(time.Millisecond, func() string { return "still at it" })
	for range 2 {
		if line := <-out; !strings.HasSuffix(line, "s  still at it\n") {
			t.Errorf("got %q", line)
		}
	}
	stop()
}

type lineChannel chan string

func (c lineChannel) Write(b []byte) (int, error) {
	select {
	case c <- string(b):
	default:
	}
	return len(b), nil
}
