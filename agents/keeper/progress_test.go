package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// world has a results volume, a clock, and the progress that reads both.
type world struct {
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
	*progress
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(noon)}
	r, err := openResults(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	if w.progress, err = newProgress(r, w.clock); err != nil {
		t.Fatal(err)
	}
	return w
}

// put replaces the progress file as a probe does.
func (w *world) put(text string) {
	w.t.Helper()
	temporary := filepath.Join(w.dir, ".new")
	write(w.t, temporary, text)
	if err := os.Rename(temporary, filepath.Join(w.dir, captureconfig.ProgressFile)); err != nil {
		w.t.Fatal(err)
	}
}

// after advances the clock and polls again.
func (w *world) after(d time.Duration) snapshot {
	w.t.Helper()
	w.clock.Step(d)
	if err := w.poll(); err != nil {
		w.t.Fatal(err)
	}
	return w.get()
}

const (
	capturing = `{"v":1,"state":"capturing","seen":3,"packets":3,"bytes":300}`
	done      = `{"v":1,"state":"done","reason":"Duration","complete":true,"seen":4,"packets":4,"bytes":400}`
)

// The files of a killed probe are listed from the disk, not from its last report.
func TestFilesOfAKilledProbe(t *testing.T) {
	w := newWorld(t)
	b, ends := blocks()
	write(t, filepath.Join(w.dir, "web-00002.pcapng"), string(b))
	write(t, filepath.Join(w.dir, "web-00003.pcapng"), string(b[:ends[0]+7]))
	write(t, filepath.Join(w.dir, ".web-00004.pcapng"), "never begun")
	write(t, filepath.Join(w.dir, "notes.txt"), "not ours")
	w.put(fmt.Sprintf(`{"v":1,"state":"capturing","files":[{"name":"web-00001.pcapng","bytes":9},{"name":"web-00002.pcapng","bytes":%d}]}`, ends[0]))
	w.after(0)
	s := w.after(time.Hour)
	want := []account.File{{Name: "web-00002.pcapng", Bytes: int64(len(b))}, {Name: "web-00003.pcapng", Bytes: int64(ends[0])}}
	if diff := cmp.Diff(want, s.account.Files); diff != "" || s.account.Reason != account.ReasonKilled {
		t.Errorf("reason %s (-want +got):\n%s", s.account.Reason, diff)
	}
}

func TestProgressFollowsTheProbe(t *testing.T) {
	w := newWorld(t)
	first := w.get()
	if s := w.after(0); s.account.State != account.StateStarting || !s.final.IsZero() {
		t.Fatalf("before there is a file: %+v", s)
	}
	w.put(capturing + "   \n") // padded, as by a rewrite in place
	s := w.after(time.Second)
	want := account.Account{Version: 1, State: account.StateCapturing, Counts: account.Counts{Seen: 3, Packets: 3, Bytes: 300}}
	if diff := cmp.Diff(want, s.account); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	select {
	case <-first.changed:
	default:
		t.Error("the change was not published")
	}
	w.put(capturing)
	if again := w.after(time.Second); again.changed != s.changed {
		t.Error("the same account counts as a change")
	}
	w.put(done)
	if s := w.after(time.Second); s.account.State != account.StateDone || !s.account.Complete || s.final != w.clock.Now() {
		t.Errorf("at the end: %+v", s)
	}
}

func TestProgressOfADeadProbe(t *testing.T) {
	w := newWorld(t)
	w.put(capturing)
	w.after(0)
	if s := w.after(staleAfter - time.Millisecond); !s.final.IsZero() {
		t.Fatalf("dead too early: %+v", s)
	}
	s := w.after(time.Millisecond)
	want := account.Account{
		Version: 1, State: account.StateDone, Reason: account.ReasonKilled, Counts: account.Counts{Seen: 3, Packets: 3, Bytes: 300}, Ended: w.clock.Now(),
	}
	if diff := cmp.Diff(want, s.account, cmpopts.IgnoreFields(account.Account{}, "Message")); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	if !strings.Contains(s.account.Message, "valid up to its last flush") {
		t.Errorf("message %q", s.account.Message)
	}
	w.put(capturing) // it was only delayed
	if s := w.after(time.Second); s.account.State != account.StateCapturing || !s.final.IsZero() {
		t.Errorf("after it reported again: %+v", s)
	}
}

// A probe that writes the same counts again and again is alive.
func TestProgressOfAnIdleCapture(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.put(capturing)
		if s := w.after(staleAfter / 2); !s.final.IsZero() {
			t.Fatalf("an idle probe counts as dead: %+v", s)
		}
	}
}

func TestProgressOfAProbeThatNeverStarts(t *testing.T) {
	w := newWorld(t)
	if s := w.after(startGrace - time.Second); !s.final.IsZero() {
		t.Fatalf("dead too early: %+v", s)
	}
	if s := w.after(time.Second); s.account.Reason != account.ReasonKilled || s.final.IsZero() {
		t.Errorf("after the grace: %+v", s)
	}
}

func TestProgressKeepsTheLastGoodAccount(t *testing.T) {
	for name, bad := range map[string]string{
		"torn":       capturing[:20],
		"empty":      "",
		"version":    `{"v":7,"state":"done"}`,
		"state":      `{"v":1,"state":"dancing"}`,
		"negative":   `{"v":1,"state":"capturing","seen":-1}`,
		"large file": strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put(capturing)
			w.after(0)
			w.put(bad)
			if err := w.poll(); err == nil {
				t.Error("no error")
			}
			if s := w.get(); s.account.Seen != 3 {
				t.Errorf("account %+v", s.account)
			}
		})
	}
}

func TestProgressIsNotReadThroughALink(t *testing.T) {
	w := newWorld(t)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	write(t, elsewhere, done)
	if err := os.Symlink(elsewhere, filepath.Join(w.dir, captureconfig.ProgressFile)); err != nil {
		t.Fatal(err)
	}
	if s := w.after(0); s.account.State != account.StateStarting {
		t.Errorf("account %+v", s.account)
	}
}

func TestRetained(t *testing.T) {
	w := newWorld(t)
	const retain = time.Hour
	w.put(capturing)
	if w.after(0); w.retained(retain) {
		t.Error("over while the capture runs")
	}
	w.put(done)
	if w.after(time.Second); w.retained(retain) {
		t.Error("over at the capture's end")
	}
	if w.after(retain - time.Second); w.retained(retain) {
		t.Error("over a second early")
	}
	if w.after(time.Second); !w.retained(retain) {
		t.Error("not over in time")
	}
}

// A probe that a stalled disk has silenced goes on afterwards: the keeper must still be there, also if retain is short.
func TestRetainedWhileSilent(t *testing.T) {
	w := newWorld(t)
	const retain = 10 * time.Second
	w.put(capturing)
	w.after(0)
	if s := w.after(staleAfter); s.final.IsZero() {
		t.Fatalf("a silent probe does not count as dead: %+v", s)
	}
	if w.after(silentRetain - time.Second); w.retained(retain) {
		t.Error("over while the probe may still report again")
	}
	w.put(capturing)
	if w.after(time.Second); w.retained(retain) {
		t.Error("over although the probe reports again")
	}
	w.put(done)
	if w.after(time.Second); w.retained(retain) {
		t.Error("over at the capture's end")
	}
	if w.after(retain); !w.retained(retain) {
		t.Error("not over in time after the probe's own report")
	}
	w = newWorld(t)
	w.put(capturing)
	w.after(0)
	w.after(staleAfter)
	if w.after(silentRetain); !w.retained(retain) {
		t.Error("not over in time after a probe's silence")
	}
}
