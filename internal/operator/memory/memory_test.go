package memory

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smaps = `00400000-01dbb000 r-xp 00000000 00:93 12109493                           /manager
Size:              26348 kB
Anonymous:             0 kB
01dbb000-03a88000 r--p 019bb000 00:93 12109493                           /manager
Anonymous:             0 kB
03a88000-03b4b000 rw-p 03688000 00:93 12109493                           /manager
Anonymous:             0 kB
03b4b000-03b4c000 r--p 03688000 00:93 12109493                           /manager
Anonymous:             4 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:          4096 kB
7f0000000000-7f0000001000 r-xp 00000000 00:93 7                          /lib/other
Anonymous:             0 kB
`

func TestUnchanged(t *testing.T) {
	want := []mapping{{0x400000, 0x1dbb000}, {0x1dbb000, 0x3a88000}}
	if diff := cmp.Diff(want, unchanged(smaps, "/manager"), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{
		"nothing":          "",
		"another program":  strings.ReplaceAll(smaps, "/manager", "/manager2"),
		"no addresses":     "x-y r-xp 00000000 00:93 12109493 /manager\nAnonymous: 0 kB\n",
		"no range":         "00400000-00400000 r-xp 00000000 00:93 12109493 /manager\nAnonymous: 0 kB\n",
		"too few fields":   "00400000-00401000\nAnonymous: 0 kB\n",
		"a line of spaces": "   \n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := unchanged(text, "/manager"); len(got) > 0 {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestRelease: the program continues with fewer resident pages of its file.
func TestRelease(t *testing.T) {
	before := resident(t)
	if err := Release(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%s kB of the file were resident, and now are %s", before, after)
	}
}

func resident(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssFile:")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return strings.Repeat(" ", 12-len(kb)) + kb // compares as a number
}
