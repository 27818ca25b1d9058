package cli

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// namesIn returns the records of the first Name Resolution Block of a file.
func namesIn(t *testing.T, path string) []pcapng.Name {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := pcapng.NewReader(f)
	for {
		b, err := r.Next()
		if err != nil {
			return nil
		}
		if n, ok := b.(*pcapng.Names); ok {
			return n.Records
		}
	}
}

// A merged file names the addresses of Pods. A user who may not list them gets the packets, and a message that names the missing rule.
func TestNamesOfAddresses(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	path := filepath.Join(t.TempDir(), "web.pcapng")
	sonde(t, s, report.ExitOK, "capture", "web", "-o", path)
	want := []pcapng.Name{{Address: netip.MustParseAddr("10.0.0.1"), Name: "shop/web-1"}}
	if diff := cmp.Diff(want, namesIn(t, path), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}

	s.podIP = ""
	r := sonde(t, s, report.ExitOK, "capture", "web", "-o", path, "--force")
	if !strings.Contains(r.out.String(), "resources: [pods, services], verbs: [list]") {
		t.Errorf("said\n%s", r.out)
	}
	if n := len(timesIn(t, path)); n != 5 || len(namesIn(t, path)) != 0 {
		t.Errorf("%d packets, names %v", n, namesIn(t, path))
	}
}
