package filterpool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// scripted is a child that compiles a filter when the test says so.
type scripted struct {
	begun   chan string // the expression of each compilation
	finish  chan error  // its end
	stopped chan struct{}
	started int
}

func (s *scripted) compile(r request, _ timeouts) (answer, error) {
	s.begun <- r.Expression
	return answer{Failure: r.Expression}, <-s.finish
}

func (s *scripted) stop() { s.stopped <- struct{}{} }

func scriptedLane(t *testing.T, idle time.Duration) (*lane, *scripted) {
	t.Helper()
	s := &scripted{begun: make(chan string), finish: make(chan error), stopped: make(chan struct{})}
	return newLane(bounds{idle: idle}, clock.RealClock{}, func() (child, error) {
		s.started++
		return s, nil
	}), s
}

// ask sends requests of a user and waits until they are in the queue.
func ask(t *testing.T, l *lane, user string, n int) <-chan error {
	t.Helper()
	l.mu.Lock()
	before := l.queue.waiting
	l.mu.Unlock()
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := l.do(t.Context(), user, request{Expression: user + strconv.Itoa(i)})
			errs <- err
		}()
	}
	for waiting := before; waiting < before+n; runtime.Gosched() {
		l.mu.Lock()
		waiting = l.queue.waiting
		l.mu.Unlock()
	}
	return errs
}

// TestThirdUserIsServedBeforeTheFlood: two users have filled their queues, and a third one's filter is the next.
func TestThirdUserIsServedBeforeTheFlood(t *testing.T) {
	l, s := scriptedLane(t, time.Hour)
	go func() { _, _ = l.do(t.Context(), "a", request{Expression: "first"}) }()
	<-s.begun
	floods := []<-chan error{ask(t, l, "a", maxPerUser), ask(t, l, "b", maxPerUser)}
	third := ask(t, l, "c", 1)
	s.finish <- nil
	// b has used as little as c, and has waited longer.
	for _, want := range []string{"b", "c"} {
		if got := <-s.begun; !strings.HasPrefix(got, want) {
			t.Errorf("compiling %s, want one of %s", got, want)
		}
		s.finish <- nil
	}
	if err := <-third; err != nil {
		t.Error(err)
	}
	if len(floods[0]) != 0 {
		t.Error("the flooder was served first")
	}
	for range 2*maxPerUser - 1 {
		<-s.begun
		s.finish <- nil
	}
	go func() { <-s.stopped }()
	l.close()
}

// TestThirdUserIsAdmittedToAFullLane: 32 namespaces have filled the queue, and a third user's filter takes the place of one
// of theirs, which has its answer at once.
func TestThirdUserIsAdmittedToAFullLane(t *testing.T) {
	l, s := scriptedLane(t, time.Hour)
	go func() { _, _ = l.do(t.Context(), "first", request{}) }()
	<-s.begun
	floods := make(chan error, maxWaiting)
	for i := range maxWaiting / maxPerUser {
		errs := ask(t, l, userOf(fmt.Sprintf("system:serviceaccount:tenant-%d:default", i)), maxPerUser)
		go func() {
			for range maxPerUser {
				floods <- <-errs
			}
		}()
	}
	alice := ask2(t, l, "alice")
	select {
	case err := <-alice:
		t.Fatal("the third user has no room:", err)
	case err := <-floods:
		if _, busy := errors.AsType[*BusyError](err); !busy {
			t.Errorf("a filter of the flood's ended with %v, want a BusyError", err)
		}
	}
	s.finish <- nil
	go func() {
		for range maxWaiting {
			<-s.begun
			s.finish <- nil
		}
	}()
	if err := <-alice; err != nil {
		t.Error(err)
	}
	for range maxWaiting - 1 {
		if err := <-floods; err != nil {
			t.Error(err)
		}
	}
	go func() { <-s.stopped }()
	l.close()
}

// TestUserWhoEndsAChildPaysForTheNext: the user of the next filter is not charged for the start of its child.
func TestUserWhoEndsAChildPaysForTheNext(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(start)
	s := &scripted{begun: make(chan string), finish: make(chan error), stopped: make(chan struct{})}
	l := newLane(bounds{idle: time.Hour}, clk, func() (child, error) {
		clk.SetTime(clk.Now().Add(time.Second))
		return s, nil
	})
	for _, tc := range []struct {
		user string
		err  error
	}{{"mallory", errTimeout}, {"alice", nil}} {
		done := ask2(t, l, tc.user)
		<-s.begun
		s.finish <- tc.err
		if err := <-done; !errors.Is(err, tc.err) {
			t.Fatal(err)
		}
	}
	go func() { <-s.stopped }()
	l.close()
	used := map[string]time.Duration{}
	for user, a := range l.queue.accounts {
		if a.used > 0 {
			used[user] = a.used
		}
	}
	if diff := cmp.Diff(map[string]time.Duration{"mallory": time.Second}, used); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
}

// TestLaneGivesUp: a request that ends while it waits is not compiled.
func TestLaneGivesUp(t *testing.T) {
	l, s := scriptedLane(t, time.Hour)
	first := ask2(t, l, "a")
	<-s.begun
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := l.do(ctx, "b", request{Expression: "gone"})
		gone <- err
	}()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		l.mu.Lock()
		waiting = l.queue.waiting
		l.mu.Unlock()
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	// A child that fails is replaced.
	s.finish <- errTimeout
	if err := <-first; !errors.Is(err, errTimeout) {
		t.Errorf("error %v, want errTimeout", err)
	}
	second := ask2(t, l, "a")
	if got := <-s.begun; got != "a" {
		t.Errorf("compiling %s", got)
	}
	s.finish <- nil
	if err := <-second; err != nil || s.started != 2 {
		t.Errorf("error %v, %d children", err, s.started)
	}
	go func() { <-s.stopped }()
	l.close()
	if _, err := l.do(t.Context(), "a", request{}); !errors.Is(err, errClosed) {
		t.Errorf("error %v, want errClosed", err)
	}
}

func ask2(t *testing.T, l *lane, user string) <-chan error {
	t.Helper()
	errs := make(chan error, 1)
	go func() {
		_, err := l.do(t.Context(), user, request{Expression: user})
		errs <- err
	}()
	return errs
}

// TestIdleLaneHasNoChild: a child that has nothing to do ends, and the next filter starts another.
func TestIdleLaneHasNoChild(t *testing.T) {
	l, s := scriptedLane(t, time.Millisecond)
	for want := 1; want <= 2; want++ {
		done := ask2(t, l, "a")
		<-s.begun
		s.finish <- nil
		if err := <-done; err != nil || s.started != want {
			t.Errorf("error %v, %d children, want %d", err, s.started, want)
		}
		<-s.stopped
		l.workers.Wait()
	}
}

// TestCompilationDoesNotHoldTheManager: garbage collections of this process end while a hostile filter is compiled. In its
// own process they would wait for it, and every goroutine for them.
func TestCompilationDoesNotHoldTheManager(t *testing.T) {
	pool := newPool(t)
	if _, err := pool.Compile(t.Context(), "alice", longList(120), pcapfilter.LinkEthernet, 0); err != nil {
		t.Fatal(err) // starts both children
	}
	begun, done := make(chan struct{}), make(chan error)
	go func() {
		close(begun)
		_, err := pool.Compile(t.Context(), "mallory", longList(240), pcapfilter.LinkEthernet, 0)
		done <- err
	}()
	<-begun
	collections := 0
	for err, running := error(nil), true; running; {
		select {
		case err = <-done:
			if running = false; err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Millisecond): // leaves the CPU to the child, which is nicer
			runtime.GC()
			collections++
		}
	}
	// The compilation takes half a second of CPU time, a collection of this small heap less than a millisecond.
	if t.Logf("%d collections", collections); collections < 10 {
		t.Errorf("%d collections ended meanwhile, want at least 10", collections)
	}
}
