package gate

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

func TestRun(t *testing.T) {
	const long, short = time.Hour, 20 * time.Millisecond
	tests := map[string]struct {
		timeout time.Duration
		on      gateconfig.OnTimeout
		until   time.Duration // from now
		ended   bool
		want    gateconfig.Outcome
	}{
		"proceeds":               {timeout: short, on: gateconfig.Proceed, want: gateconfig.Untraced},
		"refuses":                {timeout: short, on: gateconfig.Fail, until: long, want: gateconfig.Refused},
		"over before":            {timeout: long, on: gateconfig.Fail, until: -long, want: gateconfig.Over},
		"over while waiting":     {timeout: long, on: gateconfig.Fail, until: short, want: gateconfig.Over},
		"over, would proceed":    {timeout: long, on: gateconfig.Proceed, until: -long, want: gateconfig.Over},
		"the Pod ends":           {timeout: long, on: gateconfig.Proceed, ended: true, want: gateconfig.Ended},
		"the Pod ends, and Fail": {timeout: long, on: gateconfig.Fail, until: long, ended: true, want: gateconfig.Ended},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.ended {
				cancel()
			}
			var out bytes.Buffer
			o := Options{
				Config: gateconfig.Config{Timeout: tc.timeout, OnTimeout: tc.on}, Out: &out,
				TerminationLog: filepath.Join(t.TempDir(), "log"), Log: slog.New(slog.DiscardHandler),
			}
			if tc.until != 0 {
				o.Until = time.Now().Add(tc.until)
			}
			if err := os.WriteFile(o.TerminationLog, []byte("an earlier message, longer than the next one"), 0o600); err != nil {
				t.Fatal(err)
			}
			if code := Run(ctx, &o); code != tc.want.ExitCode() {
				t.Errorf("exit code %d, want %d", code, tc.want.ExitCode())
			}
			words, err := os.ReadFile(o.TerminationLog)
			if got, _, ok := gateconfig.ParseMessage(string(words)); got != tc.want || !ok || err != nil {
				t.Errorf("termination message %q, %v; want %s", words, err, tc.want)
			}
			if !strings.HasSuffix(out.String(), string(words)+"\n") {
				t.Errorf("the log %q does not end with %q", out.String(), words)
			}
		})
	}
}

func TestRunWithoutTerminationLog(t *testing.T) {
	var out bytes.Buffer
	path := filepath.Join(t.TempDir(), "log")
	o := Options{Config: gateconfig.Config{Timeout: time.Millisecond, OnTimeout: gateconfig.Fail}, Out: &out, TerminationLog: path, Log: slog.New(slog.DiscardHandler)}
	if code := Run(t.Context(), &o); code != gateconfig.ExitRefused {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it created a file")
	}
}

// Other signals neither open nor end a gate.
func TestOtherSignals(t *testing.T) {
	p := startGate(t, nil)
	p.waits(t)
	for _, s := range []syscall.Signal{syscall.SIGCHLD, syscall.SIGURG, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(t); code != gateconfig.ExitEnded {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.out.String(), string(gateconfig.Ended)) {
		t.Errorf("it said %q", p.out.String())
	}
}
