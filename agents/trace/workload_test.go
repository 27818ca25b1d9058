package trace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/privileged"
)

// Environment variables that make the test's binary a workload.
const (
	workloadEnv   = "SONDE_TRACE_WORKLOAD"
	workloadDir   = "SONDE_TRACE_WORKLOAD_DIR"
	workloadCount = "SONDE_TRACE_WORKLOAD_COUNT"
)

// The first thread of a workload runs the main function: startWorkload checks its state.
func init() {
	switch os.Getenv(workloadEnv) {
	case "threads", "become", "inherit", "answered", "headless":
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(workloadEnv) {
	case "calls":
		makeCalls(os.Getenv(workloadDir))
		os.Exit(7)
	case "reads":
		reads()
	case "touch":
		touch()
	case "eat":
		eat()
	case "segv":
		segv()
	case "network":
		networkWorkload(os.Getenv(workloadDir))
	case "accept":
		acceptWorkload()
	case "mptcp", "mptcp on the node":
		mptcpWorkload(os.Getenv(workloadEnv) == "mptcp")
	case "listen":
		listenWorkload()
	case "threads":
		threads()
	case "become":
		become()
	case "full":
		fullWorkload()
	case "crowded", "crowded with connections":
		crowdedWorkload(os.Getenv(workloadEnv) != "crowded")
	case "unshared":
		unsharedWorkload()
	case "aio":
		aioWorkload()
	case "openat2":
		openat2Workload()
	case "opened":
		readOpened()
	case "inherit":
		inheritWorkload()
	case "inherited":
		inherited()
	case "flip":
		flipWorkload()
	case "headless":
		headlessWorkload()
	case "swap":
		swapWorkload()
	case "answered":
		answeredWorkload()
	}
	os.Exit(privileged.RunOverlapping(m, 4))
}

// reads waits for a byte, and then makes exactly the requested number of one-byte reads.
func reads() {
	n, err := strconv.Atoi(os.Getenv(workloadCount))
	if err != nil {
		panic(err)
	}
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	b := make([]byte, 1)
	fmt.Println("ready")
	_, _ = unix.Read(0, b)
	for range n {
		_, _ = unix.Read(fd, b)
	}
	unix.Exit(0)
}

// touched is how many pages touch writes to.
const touched = 256

// touch waits for a byte, maps memory and writes to each of its pages.
func touch() {
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	b, err := unix.Mmap(-1, 0, touched<<12, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	for i := range touched {
		b[i<<12] = 1
	}
	_ = unix.Munmap(b)
	unix.Exit(0)
}

// eat allocates memory until it is killed.
func eat() {
	for {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 1
		}
		eaten = append(eaten, b)
	}
}

var eaten [][]byte

// segv reads from an invalid address.
func segv() {
	defer func() {
		_ = recover()
		os.Exit(0)
	}()
	fmt.Println(*nowhere)
}

var nowhere *int

// startReads starts the workload that reads so many times.
func (p *testPod) startReads(tb testing.TB, n int) (release func()) {
	tb.Helper()
	_, release = p.startWorkload(tb, "reads", n)
	return release
}

// readerOf returns the thread of a process that reads standard input, which may be any of a Go program; zero if none does.
func readerOf(tb testing.TB, pid int) int {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		tb.Fatalf("the program has no threads (%v)", err)
	}
	for _, name := range threads {
		now, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(now), fmt.Sprintf("%d 0x0 ", unix.SYS_READ)) {
			continue
		}
		if tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			return tid
		}
	}
	return 0
}

// startWorkload starts a workload in the Pod and waits until it is ready; release lets it run and waits for its end.
func (p *testPod) startWorkload(tb testing.TB, workload string, n int) (pid int, release func()) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.dir, "cgroup.procs"), os.Args[0])
	// A call that a signal interrupts is restarted, and counts twice. Go preempts itself by signals, and reads its cgroup each
	// second.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1,updatemaxprocs=0", workloadEnv+"="+workload, workloadCount+"="+strconv.Itoa(n))
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b := make([]byte, 6)
	if _, err := out.Read(b); err != nil || !strings.HasPrefix(string(b), "ready") {
		tb.Fatalf("%q, %v", b, err)
	}
	// The line may arrive before its write returns.
	for end := time.Now().Add(10 * time.Second); readerOf(tb, cmd.Process.Pid) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatal("the program does not wait")
		}
	}
	return cmd.Process.Pid, func() {
		tb.Helper()
		if _, err := in.Write([]byte("x")); err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			tb.Fatal(err)
		}
	}
}
