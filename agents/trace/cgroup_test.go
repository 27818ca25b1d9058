package trace

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// A process that moves between cgroups of its container cannot make the trace follow another cgroup than its Pod's: neither the
// node's, nor a part of the Pod, even one with the Pod's name.
func TestMovingProcess(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	still := pod.hold(t, "", "true")
	moving := pod.hold(t, filepath.Join("pod"+pod.uid, testContainer, "a"), "true")
	find := func(h *held) (kernel.Cgroup, error) { return kernel.FindCgroup("/proc", h.cmd.Process.Pid, pod.uid) }
	want, err := find(still)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for to := pod.dir; ; {
			select {
			case <-stop:
				return
			default:
			}
			if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(moving.cmd.Process.Pid)), 0o600); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond) // a machine of one processor has others to run
			if to != pod.dir {
				to = pod.dir
			} else {
				to = filepath.Join(pod.dir, "pod"+pod.uid, testContainer, "a")
			}
		}
	}()
	for range 5 {
		if got, err := find(moving); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	close(stop)
	<-done
}

// A process that belongs to another Pod by now, after its PID was used again, is refused.
func TestProcessOfAnotherPod(t *testing.T) {
	t.Parallel()
	h := newTestPod(t).hold(t, "", "true")
	other := newTestPod(t).uid
	if c, err := kernel.FindCgroup("/proc", h.cmd.Process.Pid, other); err == nil {
		t.Errorf("found %s", cmp.Diff(kernel.Cgroup{}, c, cmp.AllowUnexported(kernel.Cgroup{})))
	}
}
