// Package host prepares the machine for a measurement: network namespaces, cgroups, directories, CPUs and memory. It
// also starts processes and reads their CPU time and memory.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// Env is the environment that all measurements share.
type Env struct {
	Net     *Network
	Cgroup  string // of the target Pod and above
	Filters *pcapfilter.Compiler
	Agent   string
	Disk    string // directories of this run, on the disk and on a tmpfs
	Memory  string
	Stream  int64
	Ring    int64

	SendCPU, CaptureCPU int
	releaseMemory       func() error // undoes holdMemory
	Held                bool
	Softirq             int // PID of the softirq thread of SendCPU
	// Apart says that the kernel charges the time of interrupts to no task (CONFIG_IRQ_TIME_ACCOUNTING).
	Apart bool
}

// workPrefix begins the names of directories and cgroups. The PID follows.
const workPrefix = "sonde-bench-"

func workName() string { return workPrefix + strconv.Itoa(os.Getpid()) }

// Settings of an Env.
type Settings struct {
	Agent  string // the agent's binary
	Disk   string // directory on the disk
	Memory string // directory on a tmpfs
	Stream int64  // bytes of the TCP stream
	Ring   int64  // bytes of Sonde's rings, as by the manager's flag --ring-bytes
}

// New prepares the machine. The caller closes the Env.
func New(ctx context.Context, o *Settings) (*Env, error) {
	// A child is killed when the thread that started it ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	b := &Env{Stream: o.Stream, Ring: o.Ring}
	if err := b.open(o); err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return b, nil
}

func (b *Env) open(o *Settings) (err error) {
	if b.Agent, err = filepath.Abs(o.Agent); err != nil {
		return err
	}
	if _, err := os.Stat(b.Agent); err != nil {
		return fmt.Errorf("find the agent (make build): %w", err)
	}
	if err := b.chooseCPUs(); err != nil {
		return err
	}
	if b.Softirq, err = softirqThread(b.SendCPU); err != nil {
		return err
	}
	if b.releaseMemory, b.Held, err = holdMemory(reporting); err != nil {
		return err
	}
	if b.Disk, err = workDir(o.Disk, false); err != nil {
		return err
	}
	if b.Memory, err = workDir(o.Memory, true); err != nil {
		return err
	}
	if b.Filters, err = pcapfilter.New(pcapfilter.Most); err != nil {
		return fmt.Errorf("start the filter compiler: %w", err)
	}
	if b.Net, err = newNetwork(); err != nil {
		return err
	}
	b.Cgroup, err = newCgroup()
	return err
}

// Close removes everything that New created.
func (b *Env) Close(ctx context.Context) error {
	var errs []error
	if b.releaseMemory != nil {
		errs = append(errs, b.releaseMemory())
	}
	if b.Cgroup != "" {
		errs = append(errs, removeCgroup(b.Cgroup))
	}
	if b.Net != nil {
		errs = append(errs, b.Net.close())
	}
	if b.Filters != nil {
		errs = append(errs, b.Filters.Close(context.WithoutCancel(ctx)))
	}
	for _, dir := range []string{b.Disk, b.Memory} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// chooseCPUs chooses the first available CPU for the sender and the last one for the capture.
func (b *Env) chooseCPUs() error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("ask for CPUs: %w", err)
	}
	if set.Count() < 2 {
		return errors.New("two CPUs are needed, one to send and one to capture")
	}
	for b.SendCPU = 0; !set.IsSet(b.SendCPU); b.SendCPU++ {
		continue
	}
	for b.CaptureCPU = len(set)*64 - 1; !set.IsSet(b.CaptureCPU); b.CaptureCPU-- {
		continue
	}
	return nil
}

// workDir creates the directory of this run below dir, and removes the directories of killed runs.
func workDir(dir string, memory bool) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	if is := fileSystem(dir) == "tmpfs"; memory && !is {
		return "", fmt.Errorf("%s is on no tmpfs: name one with -tmpfs", dir)
	}
	for _, old := range leftBehind(dir) {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(old), workPrefix))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			if err := os.RemoveAll(old); err != nil {
				return "", fmt.Errorf("remove the directory of an earlier run: %w", err)
			}
		}
	}
	own := filepath.Join(dir, workName())
	if err := os.Mkdir(own, 0o755); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	return own, nil
}

// Interrupts returns the CPU time of interrupts on the sender's CPU that is charged to no task.
func (b *Env) Interrupts() time.Duration {
	if !b.Apart {
		return 0
	}
	d, err := interruptTime(b.SendCPU)
	if err != nil {
		return 0
	}
	return d
}
