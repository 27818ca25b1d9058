package main

import (
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

func TestStowawayFlags(t *testing.T) {
	identity, err := tunnel.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	text, err := identity.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stowaway.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	key := string(identity.Key)
	for name, tc := range map[string]struct {
		args     []string
		wantCode int
		want     string
	}{
		"no key":        {args: []string{"--identity", file}, wantCode: exitUsage, want: "--identity-key, --manager-key"},
		"bad key":       {args: []string{"--identity", file, "--identity-key", key, "--manager-key", "x"}, wantCode: exitUsage, want: "write the 44 characters"},
		"no file":       {args: []string{"--identity", file + "x", "--identity-key", key, "--manager-key", key}, wantCode: 1, want: "read the identity"},
		"not confined":  {args: []string{"--identity", file, "--identity-key", key, "--manager-key", key}, wantCode: 1, want: "refuses to run unconfined"},
		"an older key":  {args: []string{"--identity", file, "--identity-key", "x", "--manager-key", key}, wantCode: 1, want: "but the Deployment expects x"},
		"not a PEM":     {args: []string{"--identity", os.Args[0], "--identity-key", key, "--manager-key", key}, wantCode: 1, want: "parse identity"},
		"another value": {args: []string{"x"}, wantCode: exitUsage, want: "is not a flag"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			before := log.Writer()
			defer log.SetOutput(before)
			if code := run(t.Context(), append([]string{"stowaway"}, tc.args...), &out); code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			// The flag package prints to the process's own standard error.
			if tc.wantCode == 1 && !strings.Contains(out.String(), tc.want) {
				t.Errorf("no %q in %s", tc.want, &out)
			}
			if tc.wantCode == 1 && log.Writer() != io.Discard {
				t.Error("the standard logger writes")
			}
		})
	}
}
