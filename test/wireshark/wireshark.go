// Package wireshark has Wireshark's own programs judge capture files in tests.
package wireshark

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asRoot is what tshark says of every run as root; it is about the run, not the file.
const asRoot = `Running as user "root" and group "root". This could be dangerous.`

// Run runs capinfos, tshark or another program of Wireshark and returns what it printed. The test fails
// when the program fails, and when it says anything else on standard error: a warning is a fault of the file.
func Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatalf("%s is missing: run make deps", name)
		}
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	said := strings.TrimSpace(strings.ReplaceAll(stderr.String(), asRoot, ""))
	if err != nil || said != "" {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said)
	}
	return string(out)
}
