package filterpool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
)

// flood is how long TestFlood lasts. Without it the test compiles some filters, and checks no time.
var flood = flag.Duration("flood", 0, "flood the filter compiler for this long, and check the third user's times")

// What the third user and the manager may notice of a flood (docs/filters.md).
const (
	mostWaiting = time.Second
	mostPaused  = 50 * time.Millisecond
	// mostOthers is the work of others, in CPUs, beside which this machine's pauses say nothing about the manager.
	mostOthers = 0.1
)

// hostileText is a filter that takes as long as possible. Each one differs.
func hostileText() string {
	port := 1 + rand.IntN(60000)
	switch rand.IntN(5) {
	case 0: // ends in the quick lane's limits, and then in those of the thorough one
		return longList(470) + fmt.Sprintf(" or port %d", port)
	case 1:
		return longList(340) + fmt.Sprintf(" or port %d", port)
	case 2:
		return strings.Repeat(fmt.Sprintf("portrange %d-65535 or ", port), 150) + "tcp"
	case 3: // just below the quick lane's limits
		return longList(90) + fmt.Sprintf(" or port %d", port)
	default:
		return fmt.Sprintf("ip[%d] = 1 and (", port) + strings.Repeat("host 10.0.0.1 and port 7 or ", 100) + "udp)"
	}
}

// usual are the third user's filters.
var usual = []string{
	"tcp port 80", "host 10.128.3.17 and tcp port 8080", "udp port 53 or (tcp and tcp[tcpflags] & (tcp-syn|tcp-rst) != 0)",
	"not port 22", "vlan 100 and ip6", "net 10.0.0.0/8 and not src host 10.0.0.1",
}

// TestFlood: two users have as many hostile filters compiled as they may, and a third one is served between them.
// `make test-filter-flood` runs it for minutes.
func TestFlood(t *testing.T) {
	begin := cpuTimes(t)
	pool := newPool(t)
	ctx, cancel := context.WithCancel(t.Context())
	var hostile sync.WaitGroup
	var counts [2]tally
	for i := range counts {
		for range maxPerUser {
			hostile.Go(func() { counts[i].attack(ctx, pool, fmt.Sprintf("mallory-%d", i)) })
		}
	}
	pauses := make(chan time.Duration)
	go func() { pauses <- longestPause(ctx) }()
	machine := pauseOfTheMachine(t)
	took := serveThird(t, pool)
	cancel()
	hostile.Wait()
	pool.Close() // only the CPU time of children that have ended is known
	pause, beside, stopped := <-pauses, machine(), longestStop()
	own, children, others := cpuTimes(t).since(begin)
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%v of two users' flood: %s; %s", *flood, &counts[0], &counts[1])
	t.Logf("a third user's %d filters: median %v, p99 %v, longest %v",
		len(took), took[len(took)/2], p99, took[len(took)-1])
	t.Logf("longest pause of this process %v; of a process that does nothing else %v; longest stop by Go's runtime %v", pause, beside, stopped)
	t.Logf("CPUs used by this process %.2f, by its children %.2f, by others %.2f", own, children, others)
	switch {
	case *flood == 0:
	case p99 >= mostWaiting || stopped >= mostPaused:
		t.Errorf("want a p99 below %v, and stops below %v", mostWaiting, mostPaused)
	case pause >= mostPaused && others > mostOthers:
		t.Errorf("want pauses below %v, but the machine is busy, and its pauses are in these figures: run this on a machine without other work", mostPaused)
	case pause >= mostPaused:
		t.Errorf("want pauses below %v", mostPaused)
	}
}

// cpu is the CPU time that was used until the time at.
type cpu struct {
	at                   time.Time
	own, children, whole time.Duration
}

// cpuTimes returns the CPU time of this process, of its children that have ended, and of the whole machine. The last
// includes what the host took for its other guests.
func cpuTimes(t *testing.T) cpu {
	t.Helper()
	c := cpu{at: time.Now()}
	for who, sum := range map[int]*time.Duration{unix.RUSAGE_SELF: &c.own, unix.RUSAGE_CHILDREN: &c.children} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			t.Fatal(err)
		}
		*sum = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var user, nice, system, idle, wait, irq, softIRQ, steal int64
	if _, err := fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softIRQ, &steal); err != nil {
		t.Fatal(err)
	}
	c.whole = time.Duration(user+nice+system+irq+softIRQ+steal) * (time.Second / 100) // USER_HZ
	return c
}

// since returns how many CPUs were used since begin.
func (c cpu) since(begin cpu) (own, children, others float64) {
	took := float64(c.at.Sub(begin.at))
	own, children = float64(c.own-begin.own)/took, float64(c.children-begin.children)/took
	return own, children, float64(c.whole-begin.whole)/took - own - children
}

// tick is an argument of the test's binary that makes it print its longest pause until its input ends.
const tick = "tick"

func ticks() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println(longestPause(ctx))
}

// pauseOfTheMachine starts a process that only ticks. The result ends it and returns its longest pause: the machine may
// have other work, and be virtual.
func pauseOfTheMachine(t *testing.T) func() time.Duration {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], tick)
	var out strings.Builder
	cmd.Stdout = &out
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() time.Duration {
		_ = input.Close()
		waitErr := cmd.Wait()
		longest, err := time.ParseDuration(strings.TrimSpace(out.String()))
		if err := errors.Join(waitErr, err); err != nil {
			t.Error(err)
		}
		return longest
	}
}

// longestStop returns for how long Go's runtime has stopped all goroutines of this process at most, or let one wait that
// was ready. It is rounded up to the runtime's buckets.
func longestStop() (longest time.Duration) {
	samples := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/pauses/total/other:seconds"}, {Name: "/sched/latencies:seconds"}}
	metrics.Read(samples)
	for _, s := range samples {
		h := s.Value.Float64Histogram()
		for i, n := range h.Counts {
			if n > 0 {
				longest = max(longest, time.Duration(h.Buckets[i+1]*float64(time.Second)))
			}
		}
	}
	return longest
}

// serveThird compiles filters of a third user and returns their times.
func serveThird(t *testing.T, pool *Pool) (took []time.Duration) {
	t.Helper()
	for end := time.Now().Add(*flood); len(took) < 20 || time.Now().Before(end); {
		begin := time.Now()
		if _, err := pool.Compile(t.Context(), "alice", usual[len(took)%len(usual)], pcapfilter.LinkEthernet, 0); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
		if *flood > 0 {
			time.Sleep(50 * time.Millisecond) // a user, and no flood
		}
	}
	return took
}

// tally counts what a hostile user's filters have become.
type tally struct {
	mu                             sync.Mutex
	compiled, refused, busy, other int
	last                           error
}

func (c *tally) attack(ctx context.Context, pool *Pool, user string) {
	for ctx.Err() == nil {
		_, err := pool.Compile(ctx, user, hostileText(), pcapfilter.LinkEthernet, 0)
		_, syntax := errors.AsType[*pcapfilter.SyntaxError](err)
		_, busy := errors.AsType[*BusyError](err)
		c.mu.Lock()
		switch {
		case ctx.Err() != nil:
		case err == nil:
			c.compiled++
		case syntax:
			c.refused++
		case busy:
			c.busy++
		default:
			c.other, c.last = c.other+1, err
		}
		c.mu.Unlock()
	}
}

// String implements fmt.Stringer.
func (c *tally) String() string {
	return fmt.Sprintf("%d compiled, %d refused, %d busy, %d failed (%v)", c.compiled, c.refused, c.busy, c.other, c.last)
}

// longestPause ticks each millisecond until ctx ends, and returns the longest time between two ticks.
func longestPause(ctx context.Context) (longest time.Duration) {
	for last := time.Now(); ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
	}
	return longest
}
