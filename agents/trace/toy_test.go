package trace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What asks the test's binary to be a program that is traced.
const (
	toyEnv   = "SONDE_TRACE_TOY"
	toyDir   = "SONDE_TRACE_TOY_DIR"
	toyCount = "SONDE_TRACE_TOY_COUNT"
)

// startToy looks at what the first thread does: the program that has others must keep it for itself, from the first on.
func init() {
	if os.Getenv(toyEnv) == "threads" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(toyEnv) {
	case "calls":
		toy(os.Getenv(toyDir))
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
		toyNetwork(os.Getenv(toyDir))
	case "accept":
		toyAccept()
	case "listen":
		toyListen()
	case "threads":
		threads()
	}
	os.Exit(m.Run())
}

// reads waits for a byte, and then reads a byte so many times: as many calls, and no others.
func reads() {
	n, err := strconv.Atoi(os.Getenv(toyCount))
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

// eat takes memory until there is none.
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

// segv reads what is at no address.
func segv() {
	defer func() {
		_ = recover()
		os.Exit(0)
	}()
	fmt.Println(*nowhere)
}

var nowhere *int

// startReads starts the program that reads so many times.
func (p *testPod) startReads(tb testing.TB, n int) (let func()) {
	tb.Helper()
	_, let = p.startToy(tb, "reads", n)
	return let
}

// waitsForByte reports whether one of a process's threads reads its standard input: Go's main function may have moved from
// the first to another.
func waitsForByte(tb testing.TB, pid int) bool {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		tb.Fatalf("the program has no threads (%v)", err)
	}
	return slices.ContainsFunc(threads, func(name string) bool {
		now, err := os.ReadFile(name)
		return err == nil && strings.HasPrefix(string(now), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
	})
}

// startToy starts a program in the Pod and waits until it waits.
func (p *testPod) startToy(tb testing.TB, toy string, n int) (pid int, let func()) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(p.dir, "cgroup.procs"), os.Args[0])
	// A call that a signal interrupts is made again, and counts twice; Go interrupts itself, and asks its cgroup each second.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1,updatemaxprocs=0", toyEnv+"="+toy, toyCount+"="+strconv.Itoa(n))
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
	// The word may have come before its write returned.
	for end := time.Now().Add(10 * time.Second); !waitsForByte(tb, cmd.Process.Pid); time.Sleep(time.Millisecond) {
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
