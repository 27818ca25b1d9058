package filterpool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// TestMain makes the test's binary the children's, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		os.Exit(Child(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == tick {
		ticks()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == takenOver {
		if err := beTakenOver(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func startChild(t *testing.T, b bounds) *process {
	t.Helper()
	p, err := startProcess(clock.RealClock{}, b.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

// patient is enough for any compilation on a machine with other work.
var patient = timeouts{cpu: time.Minute, wall: time.Minute}

// TestChild: a child has nothing that it does not need, compiles, and ends as when the manager ends.
func TestChild(t *testing.T) {
	t.Setenv("SECRET", "of the manager")
	p := startChild(t, quick)
	t.Run("has nothing", hasNothing)
	t.Run("compiles", func(t *testing.T) { compiles(t, p) })
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if p.err != nil {
		t.Errorf("it ended with %v", p.err)
	}
}

func compiles(t *testing.T, p *process) {
	t.Helper()
	for expression, want := range map[string]answer{
		"tcp and udp": {Refusal: &refusal{Message: "expression rejects all packets: no packet can match, check the parts joined by and", Offset: -1}},
		"port 65536":  {Refusal: &refusal{Message: "at character 6: illegal port number 65536 > 65535", Offset: 5}},
	} {
		got, err := p.compile(request{Expression: expression, Link: pcapfilter.LinkEthernet}, patient)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
	got, err := p.compile(request{Expression: "ip", Link: pcapfilter.LinkEthernet}, patient)
	if want := "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"; err != nil || got.Program.String() != want {
		t.Errorf("got %v, %v, want %s", got.Program, err, want)
	}
}

// pidOf returns the only child of this process.
func pidOf(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			return e.Name()
		}
	}
	t.Fatal("there is no child")
	return ""
}

// hasNothing: no environment, no file but three pipes, a process group of its own, no privilege to gain, and a lower
// priority on all its threads.
func hasNothing(t *testing.T) {
	t.Helper()
	pid := pidOf(t)
	if environment, err := os.ReadFile("/proc/" + pid + "/environ"); err != nil || len(environment) != 0 {
		t.Errorf("environment %q, %v", environment, err)
	}
	files, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, err := os.Readlink("/proc/" + pid + "/fd/" + f.Name())
		// Go's runtime has more: an event queue, and the cgroup's CPU limit.
		own := strings.HasPrefix(name, "anon_inode:") || strings.HasPrefix(name, "/sys/fs/cgroup/")
		if number, _ := strconv.Atoi(f.Name()); err != nil || number <= 2 && !strings.HasPrefix(name, "pipe:") || number > 2 && !own {
			t.Errorf("file %s is %s (%v)", f.Name(), name, err)
		}
	}
	number, _ := strconv.Atoi(pid)
	if group, err := unix.Getpgid(number); err != nil || group != number {
		t.Errorf("process group %d of process %d: %v", group, number, err)
	}
	threads, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		// The kernel returns 20 - niceness (getpriority(2)). The test may be nicer.
		if raw, err := unix.Getpriority(unix.PRIO_PROCESS, id); err != nil || 20-raw < quick.niceness {
			t.Errorf("thread %d of %d has niceness %d (%v), want %d", id, len(threads), 20-raw, err, quick.niceness)
		}
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1\n") {
		t.Errorf("it may gain privileges: %v", err)
	}
	limits, err := os.ReadFile("/proc/" + pid + "/limits")
	for _, want := range []string{"Max core file size        0 ", "Max file size             0 ", "Max open files            16 "} {
		if err != nil || !strings.Contains(string(limits), want) {
			t.Errorf("limits %s, %v, want %s", limits, err, want)
		}
	}
	if strings.Contains(string(limits), "Max data size             unlimited") {
		t.Error("it may map any amount of memory")
	}
}

// TestHangingChildIsKilled: a child that does not answer in time is gone when compile returns.
func TestHangingChildIsKilled(t *testing.T) {
	p := startChild(t, quick)
	number, err := strconv.Atoi(pidOf(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(number, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Until all of its threads have stopped, one may answer.
	if err := unix.Waitid(unix.P_PID, number, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.compile(request{Expression: "ip", Link: pcapfilter.LinkEthernet}, timeouts{cpu: time.Minute, wall: time.Millisecond}); !errors.Is(err, errTimeout) {
		t.Errorf("error %v, want errTimeout", err)
	}
	if err := unix.Kill(number, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
}

// TestBusyChildIsKilled: so is a child that uses more CPU time than it may.
func TestBusyChildIsKilled(t *testing.T) {
	p := startChild(t, thorough)
	_, err := p.compile(request{Expression: longList(340), Link: pcapfilter.LinkEthernet}, timeouts{cpu: 5 * time.Millisecond, wall: time.Minute})
	if !errors.Is(err, errTimeout) {
		t.Errorf("error %v, want errTimeout", err)
	}
	<-p.ended
}

// TestDeadChildIsReplaced: the filter that waits for a child that dies is an error that may be retried, the next one is
// compiled by a new child.
func TestDeadChildIsReplaced(t *testing.T) {
	pool := newPool(t)
	if _, err := pool.Compile(t.Context(), "alice", "ip", pcapfilter.LinkEthernet, 0); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(pidOf(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(number, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, err = pool.Compile(t.Context(), "alice", "ip", pcapfilter.LinkEthernet, 0)
	if _, syntax := errors.AsType[*pcapfilter.SyntaxError](err); err == nil || syntax || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("error %v, want one that says how the child ended", err)
	}
	if _, err := pool.Compile(t.Context(), "alice", "ip", pcapfilter.LinkEthernet, 0); err != nil {
		t.Error(err)
	}
}

func newPool(t *testing.T) *Pool {
	t.Helper()
	pool, err := New(clock.RealClock{}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestPoolCompiles: what is beyond the quick lane is compiled in the thorough one, and what is beyond both is refused. How
// the children are confined is logged once.
func TestPoolCompiles(t *testing.T) {
	var lines []string
	pool, err := New(clock.RealClock{}, logTo(&lines))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for name, tc := range map[string]struct{ expression, want string }{
		"usual":    {"tcp port 80", ""},
		"long":     {longList(180), ""},
		"too long": {longList(470), "too complex"},
		"wrong":    {"tcp prot 80", "at character 5"},
		"too big":  {strings.Repeat("tcp or ", 1000) + "udp", "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := pool.Compile(t.Context(), "alice", tc.expression, pcapfilter.LinkEthernet, 0)
			if tc.want == "" && (err != nil || len(program) == 0) {
				t.Errorf("got %d instructions, %v", len(program), err)
			}
			if _, syntax := errors.AsType[*pcapfilter.SyntaxError](err); tc.want != "" && (!syntax || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want a SyntaxError that says %q", err, tc.want)
			}
		})
	}
	if program, err := pool.Compile(t.Context(), "alice", " ", pcapfilter.LinkEthernet, 0); program != nil || err != nil {
		t.Errorf("a blank filter gave %v, %v", program, err)
	}
	pool.Close()
	if _, err := pool.Compile(t.Context(), "alice", "ip", pcapfilter.LinkEthernet, 0); !errors.Is(err, errClosed) {
		t.Errorf("error %v after Close", err)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "the filter compiler") || !strings.Contains(lines[0], `"landlock"=`) {
		t.Errorf("logged %q", lines)
	}
}

// longList has n ports.
func longList(n int) string {
	var b strings.Builder
	b.WriteString("port 1")
	for i := range n - 1 {
		b.WriteString(" or " + strconv.Itoa(i%1000+2))
	}
	return b.String()
}

// TestFrames: neither side believes the other's lengths and contents.
func TestFrames(t *testing.T) {
	for name, frame := range map[string]string{
		"a long frame":                    "\xff\xff\xff\xff",
		"half a length":                   "\x00\x00",
		"half a frame":                    "\x00\x00\x00\x05{}",
		"no JSON":                         "\x00\x00\x00\x02[}",
		"a program that jumps far":        framed(`{"program":"2,21 9 9 1,6 0 0 1"}`),
		"a program that does not end":     framed(`{"program":"1,40 0 0 12"}`),
		"more instructions than it names": framed(`{"program":"1,6 0 0 1,6 0 0 1"}`),
	} {
		t.Run(name, func(t *testing.T) {
			var a answer
			if err := readFrame(strings.NewReader(frame), &a); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("read %+v, error %v", a, err)
			}
		})
	}
	var b bytes.Buffer
	want := request{Expression: `host "\`, Link: pcapfilter.LinkRaw, SnapLen: 96}
	if err := writeFrame(&b, want); err != nil {
		t.Fatal(err)
	}
	var got request
	if err := readFrame(&b, &got); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := readFrame(&b, &got); !errors.Is(err, io.EOF) {
		t.Errorf("error %v at the end, want EOF", err)
	}
}

func framed(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

func TestChildNeedsALane(t *testing.T) {
	for _, arguments := range [][]string{nil, {"fast"}, {"quick", "thorough"}} {
		if err := serve(arguments, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%q is a lane", arguments)
		}
	}
}
