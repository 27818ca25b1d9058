package trace

import (
	"os"
	"path/filepath"
	"testing"
)

// A process that was there when the trace began keeps its container's name, though it has ended before its first event is read: a gate
// does as soon as it is opened.
func TestContainerOfWhatHasEnded(t *testing.T) {
	proc := t.TempDir()
	const pid, further, cgroup = 7, 8, 99
	for name, mount := range map[string]string{
		"7": "1 2 0:3 /var/lib/kubelet/pods/0aa4ec7b-7d3c-4ab5-a6f3-5e2a1a8e8a4a/containers/sonde-gate/1f2e /dev/termination-log rw - ext4 /dev/sda rw\n",
		"8": "1 2 0:3 / / rw - overlay overlay rw\n",
	} {
		dir := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mount), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newResolver(proc)
	r.of(pid, 0)
	r.of(further, 0)
	for _, name := range []string{"7", "8"} {
		if err := os.RemoveAll(filepath.Join(proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.of(pid, cgroup).container; got != "sonde-gate" {
		t.Errorf("container %q, want sonde-gate", got)
	}
	if got := r.of(further, cgroup+1).container; got != "" {
		t.Errorf("container %q of a process that was in none", got)
	}
}
