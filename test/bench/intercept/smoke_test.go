package intercept

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/bench/benchtest"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// TestEveryWayAddsUp measures everything once with small sizes. It asserts no figure: the harness checks that the bytes
// arrive, and that the carrier has relayed them.
func TestEveryWayAddsUp(t *testing.T) {
	b := benchtest.Open(t)
	sizes := Sizes{WireGuard: filepath.Join(t.TempDir(), "wireguard"), Requests: 100, Clients: 3, Still: 300 * time.Millisecond}
	build := exec.Command("go", "build", "-C", "../wireguard", "-o", sizes.WireGuard, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if version, err := WireGuardVersion(sizes.WireGuard); err != nil || version == "" {
		t.Errorf("version %q of WireGuard: %v", version, err)
	}
	var got figures.Intercept
	if err := Round(t.Context(), b, 1, &sizes, &got); err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Streams {
		wantProcesses := map[string]int{figures.WayDirect: 0, figures.WaySonde: 3, figures.WayAPIServer: 4, figures.WayWireGuard: 2}[s.Way]
		if s.Wall <= 0 || len(s.CPU) != wantProcesses {
			t.Errorf("%+v, want a time above zero and %d processes", s, wantProcesses)
		}
		for name, cpu := range s.CPU {
			if cpu <= 0 {
				t.Errorf("%s: %s took no CPU time", s.Way, name)
			}
		}
	}
	if len(got.Streams) != len(figures.Ways) || got.Forwarded[0].Direct <= 0 || got.Forwarded[0].Carrier <= 0 || got.Held[0].Memory <= 0 {
		t.Errorf("%+v, want every way, times and memory above zero", got)
	}
}

// TestMain lets the test's own binary be a child of bench.
func TestMain(m *testing.M) { benchtest.Main(m, host.MergeRoles(host.Roles, Roles)) }
