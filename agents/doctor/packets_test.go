package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
)

// childTries is set for the child of the test below: the hook to try with its remaining capabilities.
const childTries = "SONDE_DOCTOR_TRIES"

func TestMain(m *testing.M) {
	if hook := os.Getenv(childTries); hook != "" {
		fmt.Println(packetsBy(hook)())
		return
	}
	os.Exit(m.Run())
}

// TestRightsForPackets shows which capabilities the engines need: a probe's are enough for tcx, and clsact needs one more.
func TestRightsForPackets(t *testing.T) {
	privileged.Need(t)
	probes := map[uintptr]bool{}
	for _, c := range privilege.Needed(false) {
		probes[uintptr(c.Bit)] = true
	}
	for name, tc := range map[string]struct {
		tries   string
		with    []uintptr
		without []uintptr
		want    string
	}{
		"tcx as a probe":           {tries: "tcx", want: "<nil>"},
		"clsact as a probe":        {tries: "clsact", want: "operation not permitted"},
		"clsact with one right":    {tries: "clsact", with: []uintptr{unix.CAP_NET_ADMIN}, want: "<nil>"},
		"tcx without SYS_ADMIN":    {tries: "tcx", without: []uintptr{unix.CAP_SYS_ADMIN}, want: "needs CAP_SYS_ADMIN"},
		"clsact without SYS_ADMIN": {tries: "clsact", without: []uintptr{unix.CAP_SYS_ADMIN}, want: "needs CAP_SYS_ADMIN"},
		"tcx without NET_RAW":      {tries: "tcx", without: []uintptr{unix.CAP_NET_RAW}, want: "needs CAP_NET_RAW"},
		"an unknown hook":          {tries: "xdp", want: `BPF programs cannot be attached at "xdp"`},
	} {
		t.Run(name, func(t *testing.T) {
			keep := map[uintptr]bool{}
			for c := range probes {
				keep[c] = true
			}
			for _, c := range tc.with {
				keep[c] = true
			}
			for _, c := range tc.without {
				delete(keep, c)
			}
			if said := asChild(t, tc.tries, keep); !strings.Contains(said, tc.want) {
				t.Errorf("the child says %q, want %q", said, tc.want)
			}
		})
	}
}

// asChild runs this program with some capabilities only, and returns its output.
func asChild(t *testing.T, tries string, keep map[uintptr]bool) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childTries+"="+tries)
	return privileged.RunWith(t, cmd, keep, nil)
}
