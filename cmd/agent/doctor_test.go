package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/test/privileged"
)

// The report of this machine, in both formats. Traces and packets must work, as in the agent's other tests.
func TestDoctor(t *testing.T) {
	privileged.Need(t)
	var out bytes.Buffer
	if code, err := examine(&out, []string{"--output", "json"}); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
	r, err := nodereport.Parse(append([]byte("another line\n"), out.Bytes()...))
	if err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if r.Kernel == "" || r.CPUs < 1 || r.Memory <= 0 || r.Available <= 0 || !strings.HasPrefix(r.Cgroup, "v") {
		t.Errorf("report %+v", r)
	}
	for _, c := range r.Conclusions[:3] {
		if !c.Works {
			t.Errorf("%s do not work here, where they are tested: %s", c.Part, c.Because)
		}
	}
	t.Log(r.Text())
	out.Reset()
	if code, err := examine(&out, nil); code != 0 || err != nil || !strings.Contains(out.String(), "packet captures") || strings.ContainsRune(out.String(), '{') {
		t.Errorf("exit code %d, %v:\n%s", code, err, out.String())
	}
}
