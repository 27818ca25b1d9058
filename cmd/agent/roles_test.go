package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/numbered"
)

// The tests of this package start their own binary in other roles, by this variable.
const (
	roleVariable = "SONDE_TEST_ROLE"
	roleNode     = "node"   // process 1 of a process namespace, as the kubelet's node is
	roleTarget   = "target" // a process of the target Pod
	roleKeeper   = "keeper" // confines itself like the keeper's container, and becomes an agent
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
	case roleNode:
		err = errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("proc", "/proc", "proc", 0, ""),
			// Of the kubelet: it has no link to a log here.
			os.MkdirAll("/var/log", 0o755), unix.Mount("tmpfs", "/var/log", "tmpfs", 0, ""), os.Mkdir("/var/log/containers", 0o755),
			loopbackUp(),
		)
	case roleTarget:
		err = beTarget()
	case roleKeeper:
		err = beKeeper(os.Args[1], os.Args[2], os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVariable), err)
		os.Exit(1)
	}
	if os.Getenv(roleVariable) == roleTarget {
		return
	}
	os.Exit(m.Run())
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// beTarget reads numbers from its input. For each number n it sends n numbered packets over loopback, and prints
// "sent".
func beTarget() error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	to, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	from, err := net.DialUDP("udp4", nil, to.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	fmt.Println("up")
	var next uint64
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		payload := make([]byte, numbered.MinSize)
		for range n {
			numbered.Put(payload, 1, next)
			next++
			if _, err := from.Write(payload); err != nil {
				return err
			}
		}
		fmt.Println("sent")
	}
	return lines.Err()
}

// beKeeper drops all rights that the keeper's container does not have, and executes argv. It must run in its own mount
// namespace.
func beKeeper(results, control string, argv []string) error {
	runtime.LockOSThread()
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY)
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(results, results, "", unix.MS_BIND, ""),
		unix.Mount("", results, "", flags, ""),
		unix.Mount(control, control, "", unix.MS_BIND, ""),
		unix.Mount("", "/", "", flags, ""),
	)
	if err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	const user = captureconfig.FirstKeeperUser
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(user, user, user), syscall.Setresuid(user, user, user)); err != nil {
		return fmt.Errorf("become user %d: %w", user, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	filter := unix.SockFprog{Len: 1, Filter: &allow[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil {
		return fmt.Errorf("set a system call filter: %w", err)
	}
	environ := os.Environ()
	for i, v := range environ {
		if strings.HasPrefix(v, roleVariable+"=") {
			environ = append(environ[:i], environ[i+1:]...)
			break
		}
	}
	return syscall.Exec(argv[0], argv, environ)
}
