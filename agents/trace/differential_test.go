package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// execution is the line for the start of a program, as both write it.
const execution = "execve(*) = 0x0"

// strace and the tracer record two programs in two containers of one Pod in one run. By both, each thread made the same
// calls in the same order, with the same arguments and results. Together the programs make every call that is traced.
// docs/trace.md lists the differences.
func TestAgreesWithStrace(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	idle := pod.hold(t, "", "/bin/true") // so that the Pod has a process
	programs := map[string]*straced{
		"Go": {cgroup: pod.dir, program: os.Args[0], least: 400},
		"C":  {cgroup: pod.sidecar(t), program: compile(t, "calls.c", "-pthread"), least: 400},
	}
	for _, p := range programs {
		p.prepare(t)
	}
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO, decode.GroupNetwork, decode.GroupMemory, decode.GroupSignal}})
	for _, p := range programs {
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range programs {
		if err := p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 7 {
			t.Fatalf("%s: %v: %s", name, err, p.out.String())
		}
	}
	idle.run()
	lines := r.stop()
	if r.result.Account.Lost() > 0 {
		t.Fatalf("lost: %+v", r.result.Account)
	}
	made := map[string]bool{}
	for name, p := range programs {
		t.Run(name, func(t *testing.T) { p.compare(t, lines, made) })
	}
	for _, c := range decode.All() {
		if !made[c.Name] {
			t.Errorf("no program made %s", c.Name)
		}
	}
}

// straced is a program that runs under strace in a container of the Pod.
type straced struct {
	cgroup, program string
	least           int // calls to compare
	traces          string
	cmd             *exec.Cmd
	out             strings.Builder
}

func (p *straced) prepare(t *testing.T) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is missing: make deps installs it")
	}
	p.traces = t.TempDir()
	// strace is in the Pod, too, so that its child is in the Pod from its first instruction on.
	p.cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.cgroup, "cgroup.procs"),
		strace, "-ff", "-qq", "-e", "raw=all", "-e", "signal=none", "-o", filepath.Join(p.traces, "strace"), p.program)
	p.cmd.Env = append(os.Environ(), workloadEnv+"=calls", workloadDir+"="+t.TempDir())
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
}

// compare compares the calls of each thread, and notes which were made.
func (p *straced) compare(t *testing.T, lines []line, made map[string]bool) {
	t.Helper()
	want := readStrace(t, p.traces)
	got := map[int][]string{}
	for i := range lines {
		l := &lines[i]
		if l.Call != decode.EventExec && (l.Ret == nil || byName(l.Call) == nil) {
			continue // not a call: fork is also the name of an event
		}
		if _, known := want[l.HostTID]; known {
			got[l.HostTID] = append(got[l.HostTID], raw(l))
		} else if _, ours := want[l.HostPID]; ours {
			t.Errorf("strace knows no thread %d: %+v", l.HostTID, l)
		}
	}
	compared := 0
	for tid, w := range want {
		g := got[tid]
		if len(w.calls) > 0 && w.calls[0] == execution { // skips its calls as strace's child, before execve
			for len(g) > 0 && g[0] != execution {
				g = g[1:]
			}
		}
		if w.lacksCutCall(g) {
			g = g[:len(w.calls)]
		}
		compared += len(w.calls)
		for _, text := range w.calls {
			name, _, _ := strings.Cut(text, "(")
			made[name] = true
		}
		if diff := cmp.Diff(w.calls, g, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("thread %d (-strace +trace):\n%s", tid, diff)
		}
	}
	t.Logf("%d calls of %d threads compared", compared, len(want))
	if compared < p.least || len(want) < 5 {
		t.Errorf("only %d calls of %d threads were compared", compared, len(want))
	}
}

// programsDir, in the environment, is where the programs of testdata are already: a virtual machine has no compiler.
const programsDir = "SONDE_TEST_PROGRAMS"

// compile compiles a source in testdata.
func compile(t *testing.T, source string, options ...string) string {
	t.Helper()
	name := strings.TrimSuffix(source, filepath.Ext(source))
	if dir := os.Getenv(programsDir); dir != "" {
		return filepath.Join(dir, name)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal("gcc is missing: make deps installs it")
	}
	program := filepath.Join(t.TempDir(), name)
	args := append([]string{"-Wall", "-Werror", "-O1", "-o", program, filepath.Join("testdata", source)}, options...)
	if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
