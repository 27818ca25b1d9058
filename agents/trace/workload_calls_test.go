package trace

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// makeCalls makes each call of the table, with invalid and with valid arguments.
func makeCalls(dir string) {
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	for _, c := range decode.All() {
		switch c.Number {
		case unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_CLOSE_RANGE, unix.SYS_CLOSE, unix.SYS_KILL:
			continue // invalid arguments would succeed, or signal all processes
		}
		if c.Name == "fork" || c.Name == "vfork" {
			continue
		}
		const none = ^uintptr(0)
		_, _, _ = unix.Syscall6(uintptr(c.Number), none, none, none, none, none, none)
	}
	var each sync.WaitGroup
	for i := range 3 {
		each.Go(func() {
			runtime.LockOSThread()
			useFiles(fmt.Sprintf("thread-%d", i))
			useMemory()
			useSockets(fmt.Sprintf("socket-%d", i))
		})
	}
	each.Wait()
	useFiles("main")
	useMemory()
	useSockets("socket")
	_ = unix.Kill(os.Getpid(), 0)
	_ = unix.Kill(os.Getpid(), unix.SIGURG) // which Go ignores
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGURG)
	_ = exec.Command("/bin/true", "a", "b c").Run()
	_ = exec.Command("/nowhere/to/be found").Run()
}

// useSockets uses sockets of several kinds, with both ends in this process.
func useSockets(name string) {
	at := &unix.SockaddrUnix{Name: name}
	listener := listening(unix.AF_UNIX, at)
	client, server := connected(listener, unix.AF_UNIX, at)
	move(client, server, 5)
	_ = unix.Sendto(client, make([]byte, 3), 0, nil)
	_, _, _ = unix.Recvfrom(server, make([]byte, 9), 0)
	_ = unix.Sendmsg(client, make([]byte, 3), nil, nil, 0)
	_, _, _, _, _ = unix.Recvmsg(server, make([]byte, 9), nil, 0)
	_ = unix.Shutdown(client, unix.SHUT_WR)
	pair, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	udp, _ := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	_ = unix.Bind(udp, &unix.SockaddrInet4{Addr: loopback})
	_ = unix.Connect(udp, &unix.SockaddrInet4{Addr: loopback, Port: refusedPort})
	for _, fd := range []int{client, server, listener, pair[0], pair[1], udp} {
		_ = unix.Close(fd)
	}
	_ = unix.Unlink(name)
}

// useFiles opens, changes, moves and removes files.
func useFiles(name string) {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
	if err != nil {
		panic(err)
	}
	b := make([]byte, 100)
	_, _ = unix.Write(fd, b)
	_, _ = unix.Pwrite(fd, b[:10], 50)
	_, _ = unix.Pread(fd, b, 20)
	_, _ = unix.Seek(fd, 0, 0)
	_, _ = unix.Read(fd, b)
	_, _ = unix.Readv(fd, [][]byte{b[:1], b[1:2]})
	_, _ = unix.Writev(fd, [][]byte{b[:1], b[1:2]})
	_, _ = unix.Preadv(fd, [][]byte{b[:1], b[1:2]}, 3)
	_, _ = unix.Pwritev2(fd, [][]byte{b[:1], b[1:2]}, 3, 0)
	_ = unix.Fsync(fd)
	_ = unix.Fdatasync(fd)
	_ = unix.Ftruncate(fd, 77)
	_ = unix.Fchmod(fd, 0o600)
	_ = unix.Fchown(fd, -1, -1)
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	_ = unix.Stat(name, &st)
	_ = unix.Fstatat(unix.AT_FDCWD, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	copied, _ := unix.Dup(fd)
	_ = unix.Dup3(fd, copied, unix.O_CLOEXEC)
	other, _ := unix.Openat2(unix.AT_FDCWD, name+".copy", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o600})
	_, _ = unix.CopyFileRange(fd, nil, other, nil, 10, 0)
	_, _ = unix.Seek(fd, 0, 0)
	_, _ = unix.Sendfile(other, fd, nil, 10)
	_ = unix.Close(other)
	_ = unix.Close(copied)
	_ = unix.Close(fd)
	_ = unix.Mkdir(name+".dir", 0o700)
	dir, _ := unix.Open(name+".dir", unix.O_DIRECTORY|unix.O_RDONLY, 0)
	_ = unix.Renameat(unix.AT_FDCWD, name, dir, "moved")
	_ = unix.Symlinkat("moved", dir, "link")
	_ = unix.Linkat(dir, "moved", dir, "hard", 0)
	_ = unix.Fchmodat(dir, "moved", 0o644, 0)
	_, _ = unix.Readlinkat(dir, "link", b)
	_ = unix.Faccessat(dir, "moved", unix.R_OK, 0)
	_ = unix.Truncate(name+".dir/moved", 5)
	for _, left := range []string{"moved", "link", "hard"} {
		_ = unix.Unlinkat(dir, left, 0)
	}
	_ = unix.Close(dir)
	_ = unix.Rmdir(name + ".dir")
	_ = unix.Unlink(name + ".copy")
	_ = unix.Unlink("was never there")
}

// useMemory maps, changes and unmaps memory.
func useMemory() {
	const size = 16 << 12
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	b[0] = 1
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	_ = unix.Mlock(b[:1<<12])
	_ = unix.Munlock(b[:1<<12])
	_ = unix.Mprotect(b, unix.PROT_READ)
	_ = unix.Msync(b, unix.MS_ASYNC)
	_ = unix.Munmap(b)
	_, _ = unix.Mmap(-1, 0, size, unix.PROT_READ, unix.MAP_PRIVATE) // fails: no file
}

// keptFile is open after openat2Workload's exec, closedFile is not.
const (
	keptFile   = "/etc/hostname"
	closedFile = "/etc/passwd"
)

// openat2Workload opens two files, of which the kernel closes one at exec, and starts readOpened with their descriptors.
func openat2Workload() {
	kept := value(unix.Openat2(unix.AT_FDCWD, keptFile, &unix.OpenHow{}))
	closed := value(unix.Openat2(unix.AT_FDCWD, closedFile, &unix.OpenHow{Flags: unix.O_CLOEXEC}))
	for name, to := range map[string]string{workloadEnv: "opened", workloadCount: strconv.Itoa(kept), workloadDir: strconv.Itoa(closed)} {
		must(os.Setenv(name, to))
	}
	must(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// readOpened reads from both descriptors of openat2Workload.
func readOpened() {
	for _, name := range []string{workloadCount, workloadDir} {
		_, _ = unix.Read(value(strconv.Atoi(os.Getenv(name))), make([]byte, 4))
	}
	os.Exit(0)
}
