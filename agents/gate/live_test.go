package gate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/test/privileged"
)

const (
	uid         = "8f1c2d3e-1111-4222-8333-123456789abc"
	testTimeout = 30 * time.Second
)

var (
	gateID = strings.Repeat("a1", 32)
	webID  = strings.Repeat("b2", 32)
)

// TestMain also runs the gate's neighbour, by an environment variable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "neighbour" {
		neighbourMain()
	}
	os.Exit(runTests(m))
}

// runTests makes a directory for binaries that a gate without rights can read, because t.TempDir is private.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sonde-gate")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	agent.path = filepath.Join(dir, "agent")
	return m.Run()
}

// agent is the image's binary, built once.
var agent struct {
	once sync.Once
	path string
	err  error
}

func agentBinary(t *testing.T) string {
	t.Helper()
	agent.once.Do(func() {
		if built := os.Getenv("SONDE_TEST_AGENT"); built != "" { // where there is no compiler, as in hack/vm
			agent.err = exec.Command("cp", built, agent.path).Run()
			return
		}
		build := exec.Command("go", "build", "-o", agent.path, "../../cmd/agent")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			agent.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if agent.err != nil {
		t.Fatal(agent.err)
	}
	return agent.path
}

// neighbourMain prints each signal that it gets, except the runtime's own.
func neighbourMain() {
	signals := make(chan os.Signal, 100)
	signal.Notify(signals)
	fmt.Println("up")
	for s := range signals {
		if s == syscall.SIGTERM {
			os.Exit(0)
		}
		if s != syscall.SIGURG {
			fmt.Println("got", s)
		}
	}
}

// lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type runningProcess struct {
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan struct{} // closed when it has ended, with err
	err  error
}

// startGate runs a gate that only the test opens.
func startGate(t *testing.T, attr *syscall.SysProcAttr) *runningProcess {
	t.Helper()
	args := gateconfig.Config{Timeout: 2 * testTimeout, OnTimeout: gateconfig.Fail}.Args()
	return startProgram(t, agentBinary(t), append(args, "--termination-log", "/nonexistent"), attr)
}

// startNeighbour runs this test's binary in its other role.
func startNeighbour(t *testing.T, attr *syscall.SysProcAttr, args ...string) *runningProcess {
	t.Helper()
	return startProgram(t, "/proc/self/exe", append([]string{"neighbour"}, args...), attr)
}

func startProgram(t *testing.T, program string, args []string, attr *syscall.SysProcAttr) *runningProcess {
	t.Helper()
	p := &runningProcess{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = &p.out, &p.out, "/"
	p.cmd.SysProcAttr = attr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done // otherwise its cgroup cannot be removed
	})
	return p
}

// exit returns the exit code; -1 if a signal ended it.
func (p *runningProcess) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		if _, ok := errors.AsType[*exec.ExitError](p.err); p.err != nil && !ok {
			t.Fatal(p.err)
		}
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(testTimeout):
		t.Fatalf("process %d does not end; it said %q", p.cmd.Process.Pid, p.out.String())
		return 0
	}
}

func (p *runningProcess) says(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !strings.Contains(p.out.String(), what); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it said %q, not %q", p.out.String(), what)
		}
	}
}

// waits returns when the gate has installed its handler.
func (p *runningProcess) waits(t *testing.T) {
	t.Helper()
	p.says(t, "Waiting")
}

// container makes a cgroup for a container of the Pod, as the cgroupfs driver does. Processes are started in it.
func container(t *testing.T, id string) *os.File {
	t.Helper()
	privileged.Need(t)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/unified/cgroup.procs"); err == nil {
		root += "/unified"
	}
	dir := root
	for _, name := range []string{"sonde-gate-test-" + strconv.Itoa(os.Getpid()), "kubepods", "pod" + uid, id} {
		made := filepath.Join(dir, name)
		if err := os.Mkdir(made, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(made) }) // in reverse order of creation
		dir = made
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// in returns the attributes of a process without rights in a container, like the gate.
func in(cgroup *os.File, flags uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Cloneflags: flags, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
}

func opener(t *testing.T) Opener {
	t.Helper()
	return Opener{Executable: agentBinary(t)}
}
