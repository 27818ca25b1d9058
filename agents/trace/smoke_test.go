package trace

import (
	"os"
	"slices"
	"testing"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// notCalled are the calls that the workload does not make, because with invalid arguments they would fork or close
// everything.
var notCalled = []string{"clone", "clone3", "close_range", "fork", "vfork"}

// Each call of the table is recorded and measured. make test-vm runs this on other kernels, where numbers and registers could
// differ.
func TestEachCallIsRecorded(t *testing.T) {
	pod := newTestPod(t)
	t.Setenv(workloadEnv, "calls")
	t.Setenv(workloadDir, t.TempDir())
	h := pod.hold(t, "", os.Args[0])
	calls, groups := decode.All(), decode.AllGroups()
	r := start(t, &Config{PodUID: pod.uid, Groups: groups, Durations: true})
	if _, err := h.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Wait(); h.cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("the workload: %v: %s", err, h.out.String())
	}
	times, measured := map[string]int{}, map[string]bool{}
	for _, l := range r.stop() {
		times[l.Call]++
		measured[l.Call] = measured[l.Call] || l.LatencyNs != nil && *l.LatencyNs > 0
	}
	if lost := r.result.Account.Lost(); lost > 0 {
		t.Errorf("%d events were lost: %+v", lost, r.result.Account)
	}
	for _, c := range calls {
		if !slices.Contains(notCalled, c.Name) && (times[c.Name] == 0 || !measured[c.Name]) {
			t.Errorf("%s, of group %s: recorded %d times, measured: %t", c.Name, c.Group, times[c.Name], measured[c.Name])
		}
	}
	for _, event := range []string{decode.EventExec, decode.EventFork, decode.EventExit} {
		if times[event] == 0 {
			t.Errorf("no %s is recorded", event)
		}
	}
	t.Logf("groups %v: %d calls, %d events of the scheduler", groups, len(calls)-len(notCalled), times[decode.EventExec]+times[decode.EventFork]+times[decode.EventExit])
}
