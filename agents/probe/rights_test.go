package probe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/agents/nodeproc"
	"github.com/sonde-operator/sonde/internal/account"
	"github.com/sonde-operator/sonde/internal/privilege"
)

// childDir is set for the child of the test below, which does what a probe does and has only some of its
// capabilities: file 3 is the target's network namespace.
const childDir = "SONDE_PROBE_CHILD_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	fmt.Println(errors.Join(attachAsChild(dir), checkRights(true)))
}

// attachAsChild does all for which a probe needs rights, without asking first whether it has them.
func attachAsChild(dir string) error {
	// The parent stands for the node's first process: it has more rights than the child, too.
	err := os.Symlink(fmt.Sprintf("/proc/%d", os.Getppid()), filepath.Join(dir, "1"))
	if err != nil {
		return err
	}
	if _, err := (nodeproc.Finder{Root: dir}).HostNetNS(); err != nil {
		return err
	}
	c, err := capture.NewAFPacket().Open(&capture.Config{NetNS: os.NewFile(3, "netns"), Interfaces: []string{"lo"}, Dir: dir, Base: "child"})
	if err != nil {
		return err
	}
	return errors.Join(c.Close(), signalAsChild())
}

// neighbourPID names a process of another user, as a gate is one.
const neighbourPID = "SONDE_PROBE_NEIGHBOUR"

// signalAsChild does what opens a gate.
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

// TestEachCapabilityIsNeeded: with the capabilities of the list and no others, and no way to new ones, a
// probe attaches; the kernel refuses it for the lack of each of them.
func TestEachCapabilityIsNeeded(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatal("this test needs root, and REQUIRE_PRIVILEGED=1 promises it")
		}
		t.Skip("needs root")
	}
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

// asProbeWithout runs the child with the needed capabilities but one and returns what it says.
func asProbeWithout(t *testing.T, missing string) string {
	t.Helper()
	keep := map[uintptr]bool{}
	for _, c := range privilege.Needed(true) {
		keep[uintptr(c.Bit)] = c.Name != missing
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), neighbourPID+"="+strconv.Itoa(neighbour(t)))
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		// What the thread gives up it never gets back: it stays locked, and ends with this goroutine.
		runtime.LockOSThread()
		ns, err := newNetNS()
		if err == nil {
			defer ns.Close()
			cmd.ExtraFiles = []*os.File{ns}
			err = giveUpAllBut(keep)
		}
		if err != nil {
			done <- result{err: err}
			return
		}
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("%v\n%s", r.err, r.out)
	}
	return string(r.out)
}

// newNetNS makes a namespace and comes back from it.
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

// giveUpAllBut takes the other capabilities from what the thread will execute: user 0 gets those of the
// bounding set.
func giveUpAllBut(keep map[uintptr]bool) error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func TestMissingRightIsTold(t *testing.T) {
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
