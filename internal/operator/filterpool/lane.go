package filterpool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// bounds of a lane's compilations.
type bounds struct {
	name   string
	limits pcapfilter.Limits
	within timeouts
	// niceness keeps compilations behind the manager, which shares the CPU time of its container with them.
	niceness int
	// idle is how long a child stays without work. It takes some 20 MiB.
	idle time.Duration
}

// timeouts end a child that works far longer than its limits should take, or that hangs.
type timeouts struct {
	// cpu is CPU time, so that a machine with other work changes nothing.
	cpu, wall time.Duration
}

// hang is the time after which a child that gets no CPU time, or uses none, is given up.
const hang = 30 * time.Second

var (
	quick = bounds{
		name: "quick", limits: pcapfilter.Limits{Steps: 30_000_000, MemoryPages: 128},
		within: timeouts{cpu: time.Second, wall: hang}, niceness: 5, idle: time.Minute,
	}
	thorough = bounds{
		name: "thorough", limits: pcapfilter.Most,
		within: timeouts{cpu: 10 * time.Second, wall: hang}, niceness: 15, idle: 5 * time.Second,
	}
)

func laneOf(arguments []string) (bounds, error) {
	for _, b := range []bounds{quick, thorough} {
		if len(arguments) == 1 && arguments[0] == b.name {
			return b, nil
		}
	}
	return bounds{}, fmt.Errorf("%s %q: want the name of a lane: the manager starts this itself", Subcommand, arguments)
}

// child compiles one filter after the other.
type child interface {
	// compile ends the child if it returns an error.
	compile(r request, within timeouts) (answer, error)
	stop()
}

// job is a request that waits for its answer.
type job struct {
	user    string
	request request
	since   time.Time
	done    chan outcome // has room for the one outcome
}

type outcome struct {
	answer answer
	err    error
}

var errClosed = errors.New("compile filter: the manager is shutting down")

// lane compiles the filters of its queue one by one. It runs a goroutine and a child only while there is work, and for
// some time afterwards.
type lane struct {
	bounds
	clock clock.PassiveClock
	start func() (child, error)

	mu      sync.Mutex
	queue   queue
	running bool
	closed  bool
	wake    chan struct{} // has room for one signal to the goroutine
	workers sync.WaitGroup
}

func newLane(b bounds, c clock.PassiveClock, start func() (child, error)) *lane {
	return &lane{bounds: b, clock: c, start: start, wake: make(chan struct{}, 1)}
}

// do waits for the answer to a request of a user.
func (l *lane) do(ctx context.Context, user string, r request) (answer, error) {
	j := &job{user: user, request: r, since: l.clock.Now(), done: make(chan outcome, 1)}
	if err := l.enqueue(j); err != nil {
		return answer{}, err
	}
	select {
	case o := <-j.done:
		return o.answer, o.err
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		l.queue.remove(j)
		return answer{}, fmt.Errorf("wait for the filter compiler: %w", context.Cause(ctx))
	}
}

func (l *lane) enqueue(j *job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	lost, err := l.queue.push(j)
	if err != nil {
		return err
	}
	if lost != nil {
		lost.done <- outcome{err: errFull()}
	}
	if !l.running {
		l.running = true
		l.workers.Go(l.work)
	}
	l.signal()
	return nil
}

// signal wakes the goroutine up. The caller has the lock.
func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// work compiles until the lane is idle or closed. The user whose filter ends the child is charged for the start of the next
// one, which therefore starts at once. No one is charged for the first.
func (l *lane) work() {
	var c child
	for j := l.next(); j != nil; j = l.next() {
		if c == nil {
			var err error
			if c, err = l.start(); err != nil {
				j.done <- outcome{err: err}
				continue
			}
		}
		begin := l.clock.Now()
		a, err := c.compile(j.request, l.within)
		j.done <- outcome{a, err}
		if err != nil {
			c, _ = l.start() // the next job tries again, and has the error
		}
		l.charge(j.user, begin)
	}
	if c != nil {
		c.stop()
	}
}

// charge charges a user for the time since begin.
func (l *lane) charge(user string, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.charge(user, l.clock.Since(begin), l.clock.Now())
}

// next waits for a job. It returns nil when the goroutine shall end.
func (l *lane) next() *job {
	idle := time.NewTimer(l.idle)
	defer idle.Stop()
	for timedOut := false; ; {
		if j, end := l.poll(timedOut); j != nil || end {
			return j
		}
		select {
		case <-l.wake:
		case <-idle.C:
			timedOut = true
		}
	}
}

// poll takes a job from the queue. Without one it reports whether the goroutine ends, now or because it was idle.
func (l *lane) poll(idle bool) (j *job, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j = l.queue.next(l.clock.Now())
	switch {
	case l.closed:
		for ; j != nil; j = l.queue.next(l.clock.Now()) {
			j.done <- outcome{err: errClosed}
		}
		return nil, true
	case j == nil && idle:
		l.running = false
		return nil, true
	}
	return j, false
}

// close ends the child and waits for it. A compilation that runs is finished first.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.signal()
	l.mu.Unlock()
	l.workers.Wait()
}
