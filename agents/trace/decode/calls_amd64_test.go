package decode

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// If dup2 copies a descriptor to itself, the kernel changes nothing: an exec still closes it.
func TestDup2OfADescriptorToItself(t *testing.T) {
	for name, tc := range map[string]struct {
		from uint64
		want string
	}{"to itself": {3, ""}, "to another one": {4, "/four"}} {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			at := int32(unix.AT_FDCWD)
			d.call(1, unix.SYS_OPENAT, "/three", 3, uint64(uint32(at)), 0, unix.O_CLOEXEC)
			d.open(1, "/four", 4)
			d.call(1, unix.SYS_DUP2, "", 3, tc.from, 3)
			d.event(kernel.KindExec, 1, 0)
			if got := d.read(1, 3); got != tc.want {
				t.Errorf("after an exec the path is %q, want %q", got, tc.want)
			}
		})
	}
}
