package trace

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// The numbers of 32-bit calls are other calls in 64 bits: none is recorded under a wrong name, and all are counted.
func TestCallsOf32Bits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program func(t *testing.T) string
		want    uint64
	}{
		"in a 64-bit program": {func(t *testing.T) string { t.Helper(); return compile(t, "int80.c") }, 1001},
		"in a 32-bit program": {func(t *testing.T) string { t.Helper(); return compile(t, "i386.S", "-m32", "-nostdlib", "-static") }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			program := tc.program(t)
			need32Bits(t, program)
			h := pod.hold(t, "", program)
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO, decode.GroupMemory}, Durations: true})
			h.run()
			started := false
			for _, l := range r.stop() {
				switch {
				case l.Call == decode.EventExec && l.Path == program:
					started = true
				case l.Call == "close" && asText(l.Args["fd"]) == "-1", started && l.Call == "writev": // the 64-bit meanings of 3 and 20
					t.Errorf("no call of this name was made: %+v", l)
				}
			}
			if a := r.result.Account; !started || a.LostCompat != tc.want || a.Lost() != tc.want {
				t.Errorf("%+v, want %d 32-bit calls; the program's start was seen: %v", a, tc.want, started)
			}
		})
	}
}

// Calls of x32 are counted, except on kernels without x32, where they do nothing. There a seccomp filter answers some instead.
func TestCallsOfX32(t *testing.T) {
	t.Parallel()
	program := compile(t, "x32.c")
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, known := map[string]uint64{"0 and 10 calls\n": 10, "10 and 10 calls\n": 20}[string(out)]
	if !known {
		t.Fatalf("the program says %q", out)
	}
	pod := newTestPod(t)
	h := pod.hold(t, "", program)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO}, Durations: true})
	h.run()
	r.stop()
	if a := r.result.Account; a.LostCompat != want || a.Lost() != want {
		t.Errorf("%+v, want %d calls of x32 (%q)", a, want, out)
	}
}

// need32Bits skips a test if the host does not run a program's 32-bit calls: its kernel may lack them, or a hypervisor
// may not pass them on. The shard `kernels` runs this test on a host with 32-bit calls, and allows no skip.
func need32Bits(t *testing.T, program string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	err := cmd.Run()
	if errors.Is(err, syscall.ENOEXEC) || cmd.ProcessState != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSEGV {
		t.Skipf("this host runs no 32-bit calls: %v", err)
	}
	if err != nil {
		t.Fatalf("run %s: %v", program, err)
	}
}
