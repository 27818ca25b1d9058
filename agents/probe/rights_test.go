package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
)

// childDir is set for the child of the test below, which acts like a probe with some capabilities missing. File 3 is
// the target's network namespace.
const childDir = "SONDE_PROBE_CHILD_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	fmt.Println(errors.Join(attachAsChild(dir), checkRights(true)))
}

// attachAsChild does everything for which a probe needs capabilities, without checking them first.
func attachAsChild(dir string) error {
	// The parent stands for the node's first process: it also has more rights than the child.
	err := os.Symlink(fmt.Sprintf("/proc/%d", os.Getppid()), filepath.Join(dir, "1"))
	if err != nil {
		return err
	}
	if _, err := (process.Finder{Root: dir}).HostNetNS(); err != nil {
		return err
	}
	ns := os.NewFile(3, "netns")
	for _, kind := range []capture.Kind{capture.KindAFPacket, capture.KindBPF} {
		c, err := capture.New(kind).Open(&capture.Config{NetNS: ns, Interfaces: []string{"lo"}, Dir: dir, Base: string(kind), Owner: "child"})
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return signalAsChild()
}

// neighbourPID names a process of another user, like a gate.
const neighbourPID = "SONDE_PROBE_NEIGHBOUR"

// signalAsChild signals a process as the opener of a gate does.
func signalAsChild() error {
	pid, err := strconv.Atoi(os.Getenv(neighbourPID))
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, gate.Signal, nil, 0); err != nil {
		return fmt.Errorf("signal a neighbour: %w", err)
	}
	return nil
}

// neighbour starts a process of a user without rights.
func neighbour(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd.Process.Pid
}

// TestEachCapabilityIsNeeded: with exactly the listed capabilities, and without the possibility to gain others, a probe
// attaches. Without any one of them the kernel refuses.
func TestEachCapabilityIsNeeded(t *testing.T) {
	privileged.Need(t)
	kernel := map[string]string{
		"":           "<nil>",
		"KILL":       "signal a neighbour",
		"NET_RAW":    "packet socket",
		"SYS_ADMIN":  "enter network namespace",
		"SYS_PTRACE": "find the node's network namespace",
	}
	for name, said := range kernel {
		t.Run("without "+name, func(t *testing.T) {
			got := asProbeWithout(t, name)
			if !strings.Contains(got, said) {
				t.Errorf("the child says %q, want %q", got, said)
			}
			if name != "" && !strings.Contains(got, "the probe lacks "+name+" (to ") {
				t.Errorf("the child says %q, which does not name %s", got, name)
			}
		})
	}
	if needed, tried := len(privilege.Needed(true)), len(kernel)-1; needed != tried {
		t.Errorf("%d capabilities are needed, %d are tried", needed, tried)
	}
}

// asProbeWithout runs the child with all needed capabilities except one, and returns its output.
func asProbeWithout(t *testing.T, missing string) string {
	t.Helper()
	keep := map[uintptr]bool{}
	for _, c := range privilege.Needed(true) {
		keep[uintptr(c.Bit)] = c.Name != missing
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), neighbourPID+"="+strconv.Itoa(neighbour(t)))
	return privileged.RunWith(t, cmd, keep, func() error {
		ns, err := newNetNS()
		if err == nil {
			t.Cleanup(func() { _ = ns.Close() })
			cmd.ExtraFiles = []*os.File{ns}
		}
		return err
	})
}

// newNetNS makes a network namespace and returns to the old one.
func newNetNS() (*os.File, error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	made, err := os.Open("/proc/thread-self/ns/net")
	return made, errors.Join(err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
}

func TestMissingRightIsReported(t *testing.T) {
	b := newBench(t)
	b.rights = func() error { return privilege.Check(0, false) }
	code, a := b.run(t)
	if code != ExitFailed || a.Reason != account.ReasonProbeError || a.Complete {
		t.Errorf("exit code %d, account %+v", code, a)
	}
	for _, c := range privilege.Needed(false) {
		if !strings.Contains(a.Message, c.Name) {
			t.Errorf("message %q lacks %s", a.Message, c.Name)
		}
	}
}
