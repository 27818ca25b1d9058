package sockets

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
)

// podCgroup is a Pod's cgroup in the hierarchy of version 2.
type podCgroup struct {
	dir     string
	inode   uint64
	sandbox int // a process that is there from the beginning to the end
}

// pods counts the cgroups that this test binary has made.
var pods atomic.Int64

func newPodCgroup(tb testing.TB) *podCgroup {
	tb.Helper()
	dir := filepath.Join(Cgroup2(), fmt.Sprintf("sonde-sockets-%d-%d", os.Getpid(), pods.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil { // children that programs have forked, too
			tb.Error(err)
		}
		RemoveCgroup(tb, dir)
	})
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		tb.Fatal(err)
	}
	return &podCgroup{dir: dir, inode: st.Ino}
}

// Processes makes a capture name the processes of the Pod.
func (w *World) Processes() *backend.Processes {
	return &backend.Processes{PID: w.pod.sandbox, Cgroup: w.pod.inode, Level: 1}
}

// Cgroup2 returns where the hierarchy of version 2 is mounted.
func Cgroup2() string {
	if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup/unified"
	}
	return "/sys/fs/cgroup"
}

// RemoveCgroup removes a cgroup when its last process has ended.
func RemoveCgroup(tb testing.TB, dir string) {
	tb.Helper()
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = os.Remove(dir); err == nil {
			return
		}
	}
	tb.Error(err)
}
