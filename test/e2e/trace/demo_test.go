//go:build e2e

package trace

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

// The worked diagnosis, as make demo-trace shows it: the plugin's summary names the file that is not there and the connection that is
// refused, each with its error; once the service is cured neither fails. Whoever types what docs/guide/slow-call.md says, types what was run here.
func TestTraceDemo(t *testing.T) {
	root := filepath.Dir(filepath.Dir(cluster.InstallCommand))
	cmd := osexec.CommandContext(t.Context(), filepath.Join(root, "hack", "demo-trace.sh"), "--installed")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	sick, cured, found := strings.Cut(said.String(), "\n# The cure")
	if !found {
		t.Fatalf("no cure in\n%s", said.String())
	}
	for _, want := range []string{
		`(?m)^ *\d+  openat  +ENOENT  +/etc/prices/prices\.json `,
		`(?m)^ *\d+  connect  +ECONNREFUSED  +tcp:127\.0\.0\.1:6379 `,
	} {
		if !regexp.MustCompile(want).MatchString(sick) {
			t.Errorf("the summary has nothing like %s:\n%s", want, sick)
		}
	}
	for _, failure := range []string{"openat\tENOENT\t/etc/prices/prices.json\n", "connect\tECONNREFUSED\ttcp:127.0.0.1:6379\n"} {
		if n := strings.Count(sick, failure); n != 2 {
			t.Errorf("%d Pods with %q before the cure, want 2:\n%s", n, failure, sick)
		}
		if strings.Contains(cured, failure) {
			t.Errorf("after the cure there is still %q:\n%s", failure, cured)
		}
	}
	const builtIn, fromList = `the last: {"tea": 3}`, `the last: {"tea": 4}`
	if !strings.Contains(sick, builtIn) || !strings.Contains(cured, fromList) {
		t.Errorf("want %s before the cure, and %s after it:\n%s", builtIn, fromList, said.String())
	}
	if n := strings.Count(cured, "openat\tok\t/etc/prices/price-list.json\n"); n != 2 {
		t.Errorf("%d Pods open the list after the cure, want 2:\n%s", n, cured)
	}
	typed(t, filepath.Join(root, "docs", "guide", "slow-call.md"), said.String())
}

// typed: each command of the page is one that was typed.
func typed(t *testing.T, page, said string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^    (\$ .*)$`).FindAllStringSubmatch(string(b), -1)
	if len(commands) < 5 {
		t.Errorf("%d commands in %s", len(commands), page)
	}
	for _, c := range commands {
		if !strings.Contains(said, "\n"+c[1]+"\n") {
			t.Errorf("%s: %s is not what was typed:\n%s", page, c[1], said)
		}
	}
}
