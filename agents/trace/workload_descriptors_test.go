package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors of inheritWorkload. Go's own have lower numbers.
const closedByExec, keptByExec = 100, 101

// inheritWorkload opens a file by two descriptors, waits for a byte, and replaces itself with inherited.
func inheritWorkload() {
	fd := value(unix.Open(filepath.Join(os.Getenv(workloadDir), "kept"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600))
	must(unix.Dup3(fd, closedByExec, unix.O_CLOEXEC))
	must(unix.Dup3(fd, keptByExec, 0))
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	must(os.Setenv(workloadEnv, "inherited"))
	must(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// inherited asks for both descriptors.
func inherited() {
	var st unix.Stat_t
	_ = unix.Fstat(closedByExec, &st) // closed
	must(unix.Fstat(keptByExec, &st))
	os.Exit(0)
}

// Descriptors of flipWorkload: two that stay open, one for each of its files, and those that it points to one of the files in turn.
const (
	flipOne, flipOther = 100, 101
	flipFirst, flips   = 200, 200
)

// flipWorkload has each of some descriptors be one of two files in turn, without end, and asks for its status each time before.
func flipWorkload() {
	for i, fd := range []int{flipOne, flipOther} {
		file := value(unix.Open(filepath.Join(os.Getenv(workloadDir), strconv.Itoa(i)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600))
		must(unix.Dup3(file, fd, 0))
	}
	for fd := range flips {
		must(unix.Dup3(flipOne, flipFirst+fd, 0))
	}
	fmt.Println("ready")
	for to := flipOther; ; to = flipOne + flipOther - to {
		for fd := range flips {
			var st unix.Stat_t
			must(unix.Fstat(flipFirst+fd, &st))
			must(unix.Dup3(to, flipFirst+fd, 0))
			for began := time.Now(); time.Since(began) < 20*time.Microsecond; { // a sleep would last longer
				runtime.Gosched()
			}
		}
	}
}

// swapWorkload waits for a byte. Then a thread reads from a pipe of the folder, and waits. Another one gives the thread's descriptor to
// another file, and then writes to the pipe. The descriptor is read once more.
func swapWorkload() {
	dir := os.Getenv(workloadDir)
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	pipe := value(unix.Open(filepath.Join(dir, "pipe"), unix.O_RDWR, 0))
	must(unix.Dup3(pipe, keptByExec, 0))
	other := value(unix.Open(filepath.Join(dir, "other"), unix.O_CREAT|unix.O_RDWR, 0o600))
	thread, done := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		_ = value(unix.Read(keptByExec, make([]byte, 1)))
		close(done)
	}()
	state := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread)
	for {
		b, err := os.ReadFile(state)
		must(err)
		if bytes.HasPrefix(b, fmt.Appendf(nil, "%d %#x ", unix.SYS_READ, keptByExec)) {
			break
		}
	}
	must(unix.Dup3(other, keptByExec, 0))
	_ = value(unix.Write(pipe, []byte("x")))
	<-done
	_ = value(unix.Read(keptByExec, make([]byte, 1)))
	os.Exit(0)
}

// headlessWorkload opens a file of its folder and waits for a byte. Then its first thread ends, and another one uses that file, opens it
// again, and starts a process that does so, too.
func headlessWorkload() {
	must(unix.Chdir(os.Getenv(workloadDir)))
	must(unix.Dup3(value(unix.Open("kept", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)), keptByExec, 0))
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	go func() {
		runtime.LockOSThread()
		for {
			b, err := os.ReadFile("/proc/self/stat")
			must(err)
			if bytes.Contains(b, []byte(") Z ")) {
				break
			}
		}
		var st unix.Stat_t
		must(unix.Fstat(keptByExec, &st))
		_ = value(unix.Open("kept", unix.O_RDONLY, 0))
		must(exec.Command("/bin/cat", "kept").Run())
		unix.Exit(0)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// answeredWorkload has seccomp answer chdir, waits for a byte, and asks for a file of the folder that it has not gone to.
func answeredWorkload() {
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load}, // the number of the call
		{Code: equal, Jf: 1, K: unix.SYS_CHDIR},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO}, // zero: a success
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	must(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	must(unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	must(unix.Chdir("/etc"))
	_, err := unix.Openat(unix.AT_FDCWD, "shop", unix.O_RDONLY, 0)
	if !errors.Is(err, unix.ENOENT) {
		panic(err)
	}
	unix.Exit(0)
}
