package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// The agent runs privileged on nodes: it must not link code that it does not use.
func TestLinksLittle(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	forbidden := []string{
		"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/api/", "sigs.k8s.io/", "github.com/tetratelabs/wazero",
		"github.com/sonde-operator/sonde/api", "github.com/sonde-operator/sonde/controllers", "github.com/sonde-operator/sonde/webhooks",
		"os/user", "plugin",
	}
	for dep := range strings.Lines(string(out)) {
		for _, f := range forbidden {
			if strings.HasPrefix(dep, f) {
				t.Errorf("cmd/agent links %s", strings.TrimSpace(dep))
			}
		}
	}
}

func TestArguments(t *testing.T) {
	own := newIdentity(t)
	tests := map[string]struct {
		args     []string
		wantCode int
		want     string
	}{
		"none":                  {wantCode: exitUsage, want: "usage: agent probe|keeper|ready|gate|doctor|sweep|opener|carrier|stowaway|version"},
		"unknown":               {args: []string{"dance"}, wantCode: exitUsage, want: "usage"},
		"probe without a Pod":   {args: []string{"probe", "--duration", "30"}, wantCode: exitUsage},
		"keeper without end":    {args: []string{"keeper"}, wantCode: exitUsage},
		"bad duration":          {args: []string{"keeper", "--retain", "soon"}, wantCode: exitUsage},
		"no duration":           {args: []string{"keeper", "--retain", "0"}, wantCode: exitUsage},
		"left over":             {args: []string{"ready", "steady"}, wantCode: exitUsage},
		"flag of another part":  {args: []string{"ready", "--retain", "30"}, wantCode: exitUsage},
		"unconfined keeper":     {args: []string{"keeper", "--retain", "30"}, wantCode: 1, want: "refuses to run unconfined"},
		"probe without volumes": {args: []string{"probe", "--capture-uid=c", "--pod-uid=u", "--pod-name=p", "--node=n", "--duration=30", "--results=/nonexistent"}, wantCode: 4, want: "open results volume"},
		"opener of no Pod":      {args: []string{"opener", "--carrier-user", "65532", "--socket", "/s"}, wantCode: exitUsage},
		"opener for root":       {args: []string{"opener", "--pod-uid", "u", "--pod-name", "p", "--carrier-user", "0", "--socket", "/s"}, wantCode: exitUsage},
		"opener, invalid UID":   {args: []string{"opener", "--pod-uid", "u", "--pod-name", "p", "--carrier-user", "7", "--socket", "/s", "--termination-log", "/nonexistent"}, wantCode: 4},
		"opener is not ready":   {args: []string{"ready", "--file", "/nonexistent"}, wantCode: 1},
		"carrier of no Pod":     {args: []string{"carrier", "--socket", "/s", "--stowaway", "h:1", "--stowaway-key", "k", "--identity", "/i"}, wantCode: exitUsage},
		"carrier without a key": {args: carrierOf("/nonexistent", "k"), wantCode: 1, want: "read identity"},
		"another carrier's key": {args: carrierOf(identityFile(t, own), "k"), wantCode: 1, want: "the Secret was replaced"},
		"unconfined carrier":    {args: carrierOf(identityFile(t, own), string(own.Key)), wantCode: 1, want: "refuses to run unconfined"},
		"sweep of no Pod":       {args: []string{"sweep", "--host-network"}, wantCode: exitUsage},
		"doctor, bad format":    {args: []string{"doctor", "--output", "verse"}, wantCode: exitUsage},
		"gate, unknown action":  {args: []string{"gate", "--on-timeout", "fail"}, wantCode: exitUsage},
		"gate, invalid time":    {args: []string{"gate", "--until", "tomorrow"}, wantCode: exitUsage},
		"gate of a past trace":  {args: []string{"gate", "--on-timeout", "Fail", "--until", "2020-01-01T00:00:00Z", "--termination-log", "/nonexistent"}},
		"gate that stays closed": {
			args: []string{"gate", "--timeout", "1s", "--on-timeout", "Fail", "--termination-log", "/nonexistent"}, wantCode: gateconfig.ExitRefused,
		},
		"version": {args: []string{"version"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := run(t.Context(), tc.args, &stderr)
			if code != tc.wantCode || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit code %d, %q; want %d, %q", code, stderr.String(), tc.wantCode, tc.want)
			}
		})
	}
}

// carrierOf has the arguments of a carrier with an identity whose key Stowaway expects.
func carrierOf(identity, key string) []string {
	return []string{
		"carrier", "--socket", "/nonexistent", "--stowaway", "localhost:1", "--stowaway-key", "k", "--identity", identity, "--identity-key", key,
		"--pod-uid", "u", "--pod", "n/p",
	}
}

func identityFile(t *testing.T, identity *tunnel.Identity) string {
	t.Helper()
	text, err := identity.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "identity.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReady(t *testing.T) {
	tests := map[string]struct {
		progress string
		want     int
	}{
		"nothing yet":       {want: 1},
		"waiting":           {progress: `{"v":1,"state":"starting"}`, want: 1},
		"capturing":         {progress: `{"v":1,"state":"capturing","started":"2026-05-04T12:00:00Z"}`},
		"ended":             {progress: `{"v":1,"state":"done","started":"2026-05-04T12:00:00Z"}`},
		"ended before that": {progress: `{"v":1,"state":"done","reason":"ProbeError"}`, want: 1},
		"torn":              {progress: `{"v":1,"sta`, want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.progress != "" {
				if err := os.WriteFile(filepath.Join(dir, captureconfig.ProgressFile), []byte(tc.progress), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var stderr bytes.Buffer
			if got := run(t.Context(), []string{"ready", "--results", dir}, &stderr); got != tc.want {
				t.Errorf("exit code %d, want %d: %s", got, tc.want, stderr.String())
			}
		})
	}
}
