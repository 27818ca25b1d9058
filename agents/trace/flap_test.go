package trace

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// flapLine is what FLAP's readers take lines apart by.
var flapLine = regexp.MustCompile(`^(\d+)\s+\{pid=(\d+)\s+tid=(\d+)\s+proc=([^\}]+)\}\{(EN|EX)\s+([^\}]+)\}(?:\{([^\}]*)\})?$`)

// A program that copies a file, as FLAP's toy does: each line is one that its readers know, and each call has an enter
// and an exit.
func TestFlapOfACopy(t *testing.T) {
	pod := newTestPod(t, testUID)
	h := pod.hold(t, "", "/bin/cp", "/etc/passwd", "copied")
	var text strings.Builder
	io := sinkFunc(func(lines []byte, each int) (int, error) {
		text.Write(lines)
		return bytes.Count(lines, newline) / each, nil
	})
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupProcess, GroupFile, GroupIO}, Flap: map[string]Sink{"io": io}})
	h.run()
	r.cancel()
	<-r.done
	if r.result.Err != nil || r.result.Account.Lost() > 0 {
		t.Fatalf("%+v", r.result)
	}
	open, lines, opened := map[string]string{}, uint64(0), false
	for line := range strings.Lines(text.String()) {
		lines++
		m := flapLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			t.Fatalf("FLAP's readers do not know %q", line)
		}
		tid, way, call := m[3], m[5], m[6]
		if way == "EN" {
			open[tid] = call
			opened = opened || call == "openat" && m[7] == "fname=/etc/passwd"
		} else if open[tid] != call {
			t.Errorf("%s ends in thread %s, where %q began", call, tid, open[tid])
		}
	}
	if lines != 2*r.result.Account.Written || lines < 20 || !opened {
		t.Errorf("%d lines of %d events, the copied file's opening among them: %v", lines, r.result.Account.Written, opened)
	}
}
