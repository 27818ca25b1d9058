package trace

import (
	"testing"
)

func TestTraceOfAShell(t *testing.T) {
	pod := newTestPod(t, testUID)
	h := pod.hold(t, "", "/bin/sh", "-c", "cat /etc/hostname > out; cat missing 2>/dev/null; true")
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupProcess, GroupFile, GroupIO}})
	h.run()
	lines := r.stop()
	for _, l := range lines {
		t.Logf("%+v", l)
	}
	if len(lines) == 0 {
		t.Fatal("nothing")
	}
}
