package main

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

// bench is what all measurements share.
type bench struct {
	net     *network
	cgroup  string // of the target Pod and above
	filters *pcapfilter.Compiler
	agent   string
	disk    string // directories of this run
	memory  string
	stream  int64
	ring    int64

	sendCPU, captureCPU int
	letGo               func() error // of memory that is held back from the host
	held                bool
	softirq             int // thread that does interrupts' work on sendCPU
	// apart says that the kernel counts interrupts' work in no task (CONFIG_IRQ_TIME_ACCOUNTING).
	apart bool
}

// workPrefix begins the names of directories and cgroups; the number of the process follows.
const workPrefix = "sonde-bench-"

func workName() string { return workPrefix + strconv.Itoa(os.Getpid()) }

func newBench(ctx context.Context, o *options) (*bench, error) {
	// A child is killed when the thread that started it ends: so that is always this one.
	runtime.LockOSThread()
	b := &bench{stream: o.stream, ring: o.ring}
	if err := b.open(ctx, o); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

func (b *bench) open(ctx context.Context, o *options) (err error) {
	if b.agent, err = filepath.Abs(o.agent); err != nil {
		return err
	}
	if _, err := os.Stat(b.agent); err != nil {
		return fmt.Errorf("find the agent (make build): %w", err)
	}
	if err := b.chooseCPUs(); err != nil {
		return err
	}
	if b.softirq, err = softirqThread(b.sendCPU); err != nil {
		return err
	}
	if b.letGo, b.held, err = holdMemory(reporting); err != nil {
		return err
	}
	if b.disk, err = workDir(o.disk, false); err != nil {
		return err
	}
	if b.memory, err = workDir(o.memory, true); err != nil {
		return err
	}
	if b.filters, err = pcapfilter.New(ctx); err != nil {
		return fmt.Errorf("start the filter compiler: %w", err)
	}
	if b.net, err = newNetwork(); err != nil {
		return err
	}
	b.cgroup, err = newCgroup()
	return err
}

func (b *bench) close(ctx context.Context) error {
	var errs []error
	if b.letGo != nil {
		errs = append(errs, b.letGo())
	}
	if b.cgroup != "" {
		errs = append(errs, removeCgroup(b.cgroup))
	}
	if b.net != nil {
		errs = append(errs, b.net.close())
	}
	if b.filters != nil {
		errs = append(errs, b.filters.Close(context.WithoutCancel(ctx)))
	}
	for _, dir := range []string{b.disk, b.memory} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// chooseCPUs takes the first and the last CPU that there is for us: one sends, the other captures.
func (b *bench) chooseCPUs() error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return fmt.Errorf("ask for CPUs: %w", err)
	}
	if set.Count() < 2 {
		return errors.New("two CPUs are needed, one to send and one to capture")
	}
	for b.sendCPU = 0; !set.IsSet(b.sendCPU); b.sendCPU++ {
		continue
	}
	for b.captureCPU = len(set)*64 - 1; !set.IsSet(b.captureCPU); b.captureCPU-- {
		continue
	}
	return nil
}

// workDir makes this run's directory below dir, and removes those of runs that were killed.
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
				return "", fmt.Errorf("remove what an earlier run left: %w", err)
			}
		}
	}
	own := filepath.Join(dir, workName())
	if err := os.Mkdir(own, 0o755); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	return own, nil
}

// syscallKill ends a process whose run has failed.
func syscallKill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process: %w", err)
	}
	return nil
}

// calibrate finds out whether the sender's CPU time holds the work that packets cause in interrupts.
func (b *bench) calibrate(ctx context.Context) error {
	cmd := roleCommand(ctx, "role-flood", b.sendCPU, []*os.File{b.net.sender}, flood{size: 64, count: 300_000}.args()...)
	var done flooded
	if err := talk(ctx, cmd, &done); err != nil {
		return err
	}
	const most = 0.85 // of what it seems to have had, if interrupts are apart
	b.apart = float64(used(cmd)) < most*float64(done.Target.CPU)
	return nil
}

// interrupts is the CPU time of interrupts on the sender's CPU that no task is charged with.
func (b *bench) interrupts() time.Duration {
	if !b.apart {
		return 0
	}
	d, err := interruptTime(b.sendCPU)
	if err != nil {
		return 0
	}
	return d
}
