package trace

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// interactive is a workload that prints lines and waits for input between them.
type interactive struct {
	t   *testing.T
	cmd *exec.Cmd
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// startInteractive starts a workload in the Pod, in its own network namespace or the node's.
func (p *testPod) startInteractive(t *testing.T, workload string, ownNet bool) *interactive {
	t.Helper()
	k := p.interactive(t, os.Args[0])
	// A call that a signal interrupts is restarted, and counts twice; Go preempts itself by signals.
	k.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", workloadEnv+"="+workload, workloadDir+"="+k.dir)
	if ownNet {
		k.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	k.start()
	return k
}

// startProgram starts a program in the Pod, which prints lines as a workload does.
func (p *testPod) startProgram(t *testing.T, program ...string) *interactive {
	t.Helper()
	k := p.interactive(t, program...)
	k.start()
	return k
}

func (p *testPod) interactive(t *testing.T, program ...string) *interactive {
	t.Helper()
	k := &interactive{t: t, dir: t.TempDir()}
	args := append([]string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.dir, "cgroup.procs")}, program...)
	k.cmd = exec.CommandContext(t.Context(), "/bin/sh", args...)
	k.cmd.Stderr = os.Stderr
	return k
}

func (k *interactive) start() {
	k.t.Helper()
	in, err := k.cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.in, k.out = in, bufio.NewReader(out)
	k.t.Cleanup(k.kill)
}

// expect reads the workload's next line, which starts with word, and returns the rest.
func (k *interactive) expect(word string) string {
	k.t.Helper()
	line, err := k.out.ReadString('\n')
	rest, ok := strings.CutPrefix(line, word)
	if err != nil || !ok {
		k.t.Fatalf("the workload says %q, want %q (%v)", line, word, err)
	}
	return strings.TrimSpace(rest)
}

func (k *interactive) resume() {
	k.t.Helper()
	if _, err := k.in.Write([]byte("x")); err != nil {
		k.t.Fatal(err)
	}
}

// netNS opens the workload's network namespace until the test ends.
func (k *interactive) netNS() *os.File {
	k.t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", k.cmd.Process.Pid))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// netNSLink is the link of the workload's network namespace, with its number.
func (k *interactive) netNSLink() string {
	k.t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", k.cmd.Process.Pid))
	if err != nil {
		k.t.Fatal(err)
	}
	return link
}

// kill ends the workload.
func (k *interactive) kill() {
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
}
