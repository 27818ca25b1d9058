package filterpool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// errTimeout means that a compilation took longer than its lane allows, in time.
var errTimeout = errors.New("no answer in time")

const (
	// startTimeout bounds the time until a child is ready; it takes about 0.2 s on an idle machine.
	startTimeout = time.Minute
	// endTimeout bounds the time that a child has to end after its input has.
	endTimeout = time.Second
	// maxLastWords bounds what is kept of a child's standard error, in bytes.
	maxLastWords = 512
)

// process is a running child with the parent's ends of its pipes.
type process struct {
	clock   clock.PassiveClock
	in, out *os.File
	kill    context.CancelFunc
	pid     int
	inForce restriction.InForce
	overdue atomic.Bool   // it was killed for its CPU time
	ended   chan struct{} // closed when the child is gone
	// err is how it ended, valid after ended.
	err error
}

// startProcess starts a child and waits until it is ready.
func startProcess(c clock.PassiveClock, lane string) (*process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the filter compiler: %w", err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		_, _ = childIn.Close(), in.Close()
		return nil, fmt.Errorf("start the filter compiler: %w", err)
	}
	// Go opens no file that a child would inherit, but the container's runtime may have left some.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	ctx, kill := context.WithCancel(context.Background())
	p := &process{clock: c, in: in, out: out, kill: kill, ended: make(chan struct{})}
	started := make(chan error)
	go p.run(command(ctx, lane, childIn, childOut), started)
	if err := <-started; err != nil {
		_, _ = in.Close(), out.Close()
		return nil, fmt.Errorf("start the filter compiler: %w", err)
	}
	var ready answer
	if err := p.read(&ready, startTimeout); err != nil {
		return nil, err
	}
	if ready.Failure != "" {
		p.stop()
		return nil, fmt.Errorf("start the filter compiler: %s", text.OneLine(ready.Failure, maxLastWords))
	}
	p.inForce = ready.Restrictions
	return p, nil
}

// command is this program itself as a child: without an environment, with three files, in a process group of its own, and
// killed when its parent dies.
func command(ctx context.Context, lane string, in, out *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Subcommand, lane)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &lastWords{}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = endTimeout
	return cmd
}

// run starts the child and waits for its end on one thread: the kernel sends Pdeathsig when the thread that made the child
// ends.
func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	// The child has its own copies. Without the parent's, its end is the end of the stream.
	_, _ = cmd.Stdin.(*os.File).Close(), cmd.Stdout.(*os.File).Close()
	if err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
	if words, _ := cmd.Stderr.(*lastWords); p.err != nil && words.Len() > 0 {
		p.err = fmt.Errorf("%w: %s", p.err, text.OneLine(words.String(), maxLastWords))
	}
	close(p.ended)
}

// compile implements child.
func (p *process) compile(r request, within timeouts) (answer, error) {
	defer p.watch(within.cpu)()
	if err := p.in.SetWriteDeadline(p.clock.Now().Add(within.wall)); err != nil {
		return answer{}, fmt.Errorf("ask the filter compiler: %w", err)
	}
	if err := writeFrame(p.in, r); err != nil {
		return answer{}, fmt.Errorf("ask the filter compiler: %w", p.lost(err))
	}
	var a answer
	err := p.read(&a, within.wall) // not in the return: Go does not say whether that reads a before the call
	return a, err
}

// watch kills the child when it has used so much CPU time from now on, until the caller calls done.
func (p *process) watch(limit time.Duration) (done func()) {
	ctx, done := context.WithCancel(context.Background())
	begin := p.cpuTime()
	go func() {
		for used := time.Duration(0); used < limit; used = p.cpuTime() - begin {
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(limit-used, time.Millisecond)):
			}
		}
		p.overdue.Store(true)
		p.kill()
	}()
	return done
}

// cpuTime returns the CPU time that the child has used. For a child that is gone it returns 0.
func (p *process) cpuTime() time.Duration {
	// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) in linux/posix-timers_types.h.
	var used unix.Timespec
	_ = unix.ClockGettime(int32(^p.pid)<<3|2, &used)
	return time.Duration(used.Nano())
}

func (p *process) read(a *answer, limit time.Duration) error {
	if err := p.out.SetReadDeadline(p.clock.Now().Add(limit)); err != nil {
		return fmt.Errorf("read from the filter compiler: %w", err)
	}
	if err := readFrame(p.out, a); err != nil {
		return fmt.Errorf("read from the filter compiler: %w", p.lost(err))
	}
	return nil
}

// lost ends a child that does not answer as it should, and adds to the error how the child has ended.
func (p *process) lost(err error) error {
	if os.IsTimeout(err) {
		p.kill()
		p.stop()
		return errTimeout
	}
	p.stop()
	if p.overdue.Load() {
		return errTimeout
	}
	if p.err != nil {
		return fmt.Errorf("%w: it has ended: %w", err, p.err)
	}
	return err
}

// stop implements child. A child ends when its input does.
func (p *process) stop() {
	_, _ = p.in.Close(), p.out.Close()
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
	}
	p.kill()
	<-p.ended
}

// lastWords keeps the beginning of what a child writes about its end.
type lastWords struct{ bytes.Buffer }

// Write implements io.Writer.
func (w *lastWords) Write(b []byte) (int, error) {
	if room := maxLastWords - w.Len(); room > 0 {
		_, _ = w.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}
