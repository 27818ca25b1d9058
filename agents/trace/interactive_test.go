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

	"golang.org/x/sys/unix"
)

// talking is a toy of the Pod that says where it is, and waits.
type talking struct {
	t   *testing.T
	cmd *exec.Cmd
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// talk starts a toy in the Pod, with a network namespace of its own or the node's.
func (p *testPod) talk(t *testing.T, toy string, ownNet bool) *talking {
	t.Helper()
	k := &talking{t: t, dir: t.TempDir()}
	k.cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.dir, "cgroup.procs"), os.Args[0])
	// A call that a signal interrupts is made again, and counts twice; Go interrupts itself.
	k.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", toyEnv+"="+toy, toyDir+"="+k.dir)
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
	t.Cleanup(func() {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	})
	return k
}

// says waits for the toy's next line, and returns what stands in it behind a word.
func (k *talking) says(word string) string {
	k.t.Helper()
	line, err := k.out.ReadString('\n')
	rest, ok := strings.CutPrefix(line, word)
	if err != nil || !ok {
		k.t.Fatalf("the toy says %q, want %q (%v)", line, word, err)
	}
	return strings.TrimSpace(rest)
}

func (k *talking) goOn() {
	k.t.Helper()
	if _, err := k.in.Write([]byte("x")); err != nil {
		k.t.Fatal(err)
	}
}

// netNS is the number of the toy's namespace.
func (k *talking) netNS() uint32 {
	k.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", k.cmd.Process.Pid), &st); err != nil {
		k.t.Fatal(err)
	}
	return uint32(st.Ino)
}
