package probe

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/privileged"
)

func newTestReporter(t *testing.T, dir string) *reporter {
	t.Helper()
	write(t, filepath.Join(dir, "termination-log"), "an earlier message")
	r, err := newReporter(dir, filepath.Join(dir, "termination-log"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAccount(t *testing.T, path string) account.Account {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := account.Parse(b)
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return a
}

// A shorter message must overwrite all of a longer one, and be complete at every moment.
func TestMessageThatBecomesShorter(t *testing.T) {
	dir := t.TempDir()
	r := newTestReporter(t, dir)
	path := filepath.Join(dir, "termination-log")
	var sizes []int64
	for _, text := range []string{"short", strings.Repeat("long ", 40), "short again"} {
		r.account.Message, r.messaged = text, time.Time{}
		r.write()
		if a := readAccount(t, path); a.Message != text {
			t.Errorf("message %q, want %q", a.Message, text)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	if sizes[1] != sizes[2] {
		t.Errorf("sizes %v: the message was cut in a second step", sizes)
	}
}

func TestProgressFileIsReadableByTheKeeper(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	newTestReporter(t, dir).write()
	info, err := os.Stat(filepath.Join(dir, captureconfig.ProgressFile))
	if err != nil || info.Mode().Perm() != fs.FileMode(0o644) {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A running capture's progress file keeps changing, which shows the keeper that the probe lives.
func TestProgressFileIsReplacedAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	r := newTestReporter(t, dir)
	path := filepath.Join(dir, captureconfig.ProgressFile)
	r.start(time.Millisecond)
	defer r.close()
	first, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if now, err := os.Stat(path); err == nil && !now.ModTime().Equal(first.ModTime()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the progress file does not change")
		}
	}
}

// After a probe is killed, its termination message names the current files. The keeper counts by the progress file what a reader of a ring
// lacks, so that file has the same before the ring goes on.
func TestFilesChangedIsReportedAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := newTestReporter(t, dir)
	r.start(time.Hour)
	defer r.close()
	var live record.Account
	r.attached(func(a *account.Account) { countPackets(a, &live) })
	for _, name := range []string{"web-00001.pcapng", "web-00002.pcapng"} {
		live.Files = []record.File{{Name: name, Bytes: 9}}
		live.Overwritten++
		r.filesChanged()
		want := []account.File{{Name: name, Bytes: 9}}
		for _, report := range []string{"termination-log", captureconfig.ProgressFile} {
			a := readAccount(t, filepath.Join(dir, report))
			if diff := cmp.Diff(want, a.Files); diff != "" || a.Overwritten != int64(live.Overwritten) {
				t.Errorf("%s: %d packets are overwritten, want %d; files (-want +got):\n%s", report, a.Overwritten, live.Overwritten, diff)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	tests := map[string]struct {
		attached, complete bool
		want               int
	}{
		"complete":   {attached: true, complete: true, want: ExitComplete},
		"incomplete": {attached: true, want: ExitIncomplete},
		"failed":     {want: ExitFailed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := newTestReporter(t, dir)
			r.start(time.Hour)
			if tc.attached {
				r.attached(func(*account.Account) {})
			}
			r.finish(account.ReasonStopped, tc.complete, "")
			r.finish(account.ReasonProbeError, false, "a later end is not the end")
			if got := r.close(); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
			if a := readAccount(t, filepath.Join(dir, "termination-log")); a.Reason != account.ReasonStopped {
				t.Errorf("reason %q", a.Reason)
			}
		})
	}
}

// The end of a capture must reach the keeper even on a full disk.
func TestReportOnAFullDisk(t *testing.T) {
	privileged.Need(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	r := newTestReporter(t, dir)
	r.start(time.Hour)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o644); err == nil {
		t.Fatal("the disk is not full")
	}
	r.finish(account.ReasonDiskFull, false, "no space left on device")
	r.close()
	if a := readAccount(t, filepath.Join(dir, captureconfig.ProgressFile)); a.State != account.StateDone || a.Reason != account.ReasonDiskFull {
		t.Errorf("progress %+v", a)
	}
}
