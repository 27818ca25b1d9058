// Package wireshark checks capture files in tests with Wireshark's own programs.
package wireshark

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asRoot is tshark's warning about each run as root. It concerns the run, not the file.
const asRoot = `Running as user "root" and group "root". This could be dangerous.`

// Run runs capinfos, tshark or another program of Wireshark and returns its standard output. The test fails if the
// program fails or prints anything else on standard error, because a warning is a defect of the file.
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
	warnings := strings.TrimSpace(strings.ReplaceAll(stderr.String(), asRoot, ""))
	if err != nil || warnings != "" {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, warnings)
	}
	return string(out)
}
