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

// The demo of docs/guide/slow-call.md, as make demo-trace runs it. The plugin's summary names the missing file and the
// refused connection, each with its error. Neither fails after the repair. The commands on the page are those that ran
// here.
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
		t.Fatalf("found no repair in\n%s", said.String())
	}
	for _, want := range []string{
		`(?m)^ *\d+  openat  +ENOENT  +/etc/prices/prices\.json `,
		`(?m)^ *\d+  connect  +ECONNREFUSED  +tcp:127\.0\.0\.1:6379 `,
	} {
		if !regexp.MustCompile(want).MatchString(sick) {
			t.Errorf("the summary does not match %s:\n%s", want, sick)
		}
	}
	for _, failure := range []string{"openat\tENOENT\t/etc/prices/prices.json\n", "connect\tECONNREFUSED\ttcp:127.0.0.1:6379\n"} {
		if n := strings.Count(sick, failure); n != 2 {
			t.Errorf("got %d Pods with %q before the repair, want 2:\n%s", n, failure, sick)
		}
		if strings.Contains(cured, failure) {
			t.Errorf("after the repair the summary still contains %q:\n%s", failure, cured)
		}
	}
	const builtIn, fromList = `the last: {"tea": 3}`, `the last: {"tea": 4}`
	if !strings.Contains(sick, builtIn) || !strings.Contains(cured, fromList) {
		t.Errorf("want %s before the repair and %s after it:\n%s", builtIn, fromList, said.String())
	}
	if n := strings.Count(cured, "openat\tok\t/etc/prices/price-list.json\n"); n != 2 {
		t.Errorf("got %d Pods that open the list after the repair, want 2:\n%s", n, cured)
	}
	typed(t, filepath.Join(root, "docs", "guide", "slow-call.md"), said.String())
}

// typed asserts that each command on the page is one that the demo ran.
func typed(t *testing.T, page, said string) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^    (\$ .*)$`).FindAllStringSubmatch(string(b), -1)
	if len(commands) < 5 {
		t.Errorf("found %d commands in %s", len(commands), page)
	}
	for _, c := range commands {
		if !strings.Contains(said, "\n"+c[1]+"\n") {
			t.Errorf("%s: the demo did not run %s:\n%s", page, c[1], said)
		}
	}
}
