package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:20 / /cache/run rw - tmpfs tmpfs rw
31 30 0:21 / /cache/run/with\040blank rw shared:3 - tmpfs tmpfs rw
32 22 0:22 / /cache/runner rw - tmpfs tmpfs rw
cut off
`
	want := []string{"/cache/run", "/cache/run/with blank"}
	if diff := cmp.Diff(want, mountsBelow([]byte(mountinfo), "/cache/run")); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func FuzzMountsBelow(f *testing.F) {
	f.Add([]byte(`31 30 0:21 / /run/with\040blank rw - tmpfs tmpfs rw`))
	f.Fuzz(func(t *testing.T, mountinfo []byte) {
		for _, m := range mountsBelow(mountinfo, "/run") {
			if m != "/run" && !strings.HasPrefix(m, "/run/") {
				t.Errorf("%q is not below /run", m)
			}
		}
	})
}
