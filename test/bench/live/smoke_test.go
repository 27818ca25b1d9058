package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/bench/benchtest"
	"github.com/sonde-operator/sonde/test/bench/capture"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// TestEverythingAddsUp measures everything once with small sizes. It asserts no figure: the harness checks that each packet is in the
// stream or counted, that each names its process, and that each has a line.
func TestEverythingAddsUp(t *testing.T) {
	b := benchtest.Open(t)
	sizes := Sizes{Plugin: filepath.Join(t.TempDir(), "kubectl-sonde"), Frames: 3000, Packets: 2, Ways: figures.LiveWays[1:3], Follow: time.Second}
	build := exec.Command("go", "build", "-o", sizes.Plugin, "github.com/sonde-operator/sonde/cmd/kubectl-sonde")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, w := range figures.LiveWays {
		if w.Alone {
			sizes.Ways = append(slices.Clone(sizes.Ways), w)
		}
	}
	var got figures.Live
	if err := Round(t.Context(), b, 1, &sizes, &got); err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Flows {
		if s.Captured+s.Dropped != sizes.Frames || s.Process <= 0 {
			t.Errorf("%+v, want %d packets and a time above zero", s, sizes.Frames)
		}
	}
	for _, f := range got.Followed {
		if f.Packets == 0 || f.CPU <= 0 || f.Anonymous <= 0 || f.Resident <= f.Anonymous {
			t.Errorf("%+v, want packets, a time and memory above zero", f)
		}
	}
	for _, l := range got.Latencies {
		if len(l.Times) != sizes.Packets || l.Times[0] <= 0 {
			t.Errorf("%+v, want %d times above zero", l, sizes.Packets)
		}
	}
	if len(got.Flows) != 2*len(figures.FlowPairs) || len(got.Followed) != 1 || len(got.Latencies) != len(sizes.Ways) {
		t.Errorf("%d runs of flows, %d streams and %d latencies", len(got.Flows), len(got.Followed), len(got.Latencies))
	}
}

// TestMain lets the test's own binary be a child of bench.
func TestMain(m *testing.M) {
	benchtest.Main(m, host.MergeRoles(host.Roles, capture.Roles, Roles))
}
