package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

const (
	// pollInterval is how often the progress file is read. The probe replaces it about as often.
	pollInterval = 250 * time.Millisecond
	// staleAfter is how long a probe may be silent before it counts as dead. It writes twice a second.
	staleAfter = 15 * time.Second
	// startGrace is how long a probe may take for its first report: its container starts beside this one.
	startGrace = 5 * time.Minute
	// silentRetain is how long the result of a silent probe is kept at least: a disk that stalls also silences a probe that goes on
	// afterwards. Together with a late start it fits into the Job's deadline (agentjob.Margin), after which the account is lost.
	silentRetain = 4 * time.Minute
)

// snapshot is the progress at one moment.
type snapshot struct {
	account account.Account
	line    []byte    // the account as JSON, without newline
	final   time.Time // when the probe's last report was read; zero while it lives
	changed chan struct{}
}

// progress follows the probe's progress file.
type progress struct {
	results *results
	clock   clock.PassiveClock

	mu   sync.Mutex
	now  snapshot
	last fileIdentity // the progress file at its last change
	at   time.Time    // time of that change, by our own clock
	// silent reports that the probe only counts as dead. It belongs to the goroutine that polls.
	silent bool
}

// fileIdentity changes whenever the probe writes: it replaces the file, or rewrites it in place on a full disk.
type fileIdentity struct {
	inode     uint64
	modified  unix.Timespec
	published bool
}

func newProgress(r *results, c clock.PassiveClock) (*progress, error) {
	p := &progress{results: r, clock: c, at: c.Now()}
	if err := p.set(account.Account{State: account.StateStarting}, time.Time{}); err != nil {
		return nil, err
	}
	return p, nil
}

// get returns the current snapshot; its channel is closed when the next one exists.
func (p *progress) get() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// retained reports whether the result has been kept for retain. It belongs to the goroutine that polls.
func (p *progress) retained(retain time.Duration) bool {
	s := p.get()
	if p.silent {
		retain = max(retain, silentRetain)
	}
	return !s.final.IsZero() && p.clock.Since(s.final) >= retain
}

// poll reads the progress file. After an error the last good account stays.
func (p *progress) poll() error {
	b, id, err := p.read()
	if err == nil && id != p.last {
		p.last, p.at = id, p.clock.Now()
		err = p.update(b)
	}
	if err := p.expire(); err != nil {
		return err
	}
	if errors.Is(err, errNotServed) && !p.last.published {
		return nil // it does not exist yet
	}
	return err
}

// read returns the progress file and its identity, which shows whether it changed. The file's time is not compared with
// the clock, which may be set during the capture.
func (p *progress) read() ([]byte, fileIdentity, error) {
	f, _, err := p.results.open(captureconfig.ProgressFile)
	if err != nil {
		return nil, fileIdentity{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fileIdentity{}, fmt.Errorf("inspect progress file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, account.MaxBytes+2))
	if err != nil {
		return nil, fileIdentity{}, fmt.Errorf("read progress file: %w", err)
	}
	return bytes.TrimSpace(b), fileIdentity{inode: st.Ino, modified: st.Mtim, published: true}, nil
}

func (p *progress) update(b []byte) error {
	a, err := account.Parse(b)
	if err != nil {
		return fmt.Errorf("read progress file: %w", err)
	}
	p.silent = false
	var final time.Time
	if a.State == account.StateDone {
		final = p.clock.Now()
	}
	return p.set(a, final)
}

// expire declares a silent probe dead. If it reports again, update corrects that.
func (p *progress) expire() error {
	s := p.get()
	grace := staleAfter
	if !p.last.published {
		grace = startGrace
	}
	if !s.final.IsZero() || p.clock.Since(p.at) < grace {
		return nil
	}
	a := s.account
	a.State, a.Complete, a.Reason = account.StateDone, false, account.ReasonKilled
	a.Message = fmt.Sprintf("the probe has not reported for %v: it was killed, or never started; the file is valid up to its last flush", grace)
	a.Ended = p.clock.Now().UTC()
	// The last report may be older than the last packets, and than the last change of a ring's files.
	if files, err := p.results.list(a.Files); err == nil && len(files) > 0 {
		a.Files = files
	}
	if a.Ended.Before(a.Started) { // the node's clock was set back
		a.Ended = a.Started
	}
	p.silent = true
	return p.set(a, p.clock.Now())
}

// set publishes an account if it differs from the last one.
func (p *progress) set(a account.Account, final time.Time) error {
	line, err := a.Marshal()
	if err != nil {
		return fmt.Errorf("publish progress: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Equal(line, p.now.line) {
		return nil
	}
	if p.now.changed != nil {
		close(p.now.changed)
	}
	p.now = snapshot{account: a, line: line, final: final, changed: make(chan struct{})}
	return nil
}

// follow polls until ctx ends or the result has been kept for retain.
func (p *progress) follow(ctx context.Context, ticks <-chan time.Time, retain time.Duration, report func(error)) {
	var last string
	for {
		if err := p.poll(); err != nil && err.Error() != last {
			last = err.Error()
			report(err)
		}
		if p.retained(retain) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}
