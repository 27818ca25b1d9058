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
	k := &interactive{t: t, dir: t.TempDir()}
	k.cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.dir, "cgroup.procs"), os.Args[0])
	// A call that a signal interrupts is restarted, and counts twice; Go preempts itself by signals.
	k.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", workloadEnv+"="+workload, workloadDir+"="+k.dir)
	k.cmd.Stderr = os.Stderr
	if ownNet {
		k.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	k.in, k.out = in, bufio.NewReader(out)
	t.Cleanup(k.kill)
	return k
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
