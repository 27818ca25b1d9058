package probe

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// messageInterval is the shortest time between two writes of the termination message, but for the last.
const messageInterval = time.Second

// reporter writes the account to the progress file and to the termination log.
type reporter struct {
	results *os.Root
	message *os.File
	log     *slog.Logger

	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	account  account.Account
	live     func(*account.Account) // nil unless something is recorded
	began    time.Time              // with the monotonic clock, which UTC takes away
	longest  int                    // of the termination messages so far, in bytes
	messaged time.Time              // when the last one was written
	failed   string                 // the last error that was logged
}

// newReporter opens both places and makes the first report.
func newReporter(resultsDir, terminationLog string, log *slog.Logger) (*reporter, error) {
	results, err := os.OpenRoot(resultsDir)
	if err != nil {
		return nil, fmt.Errorf("open results volume: %w", err)
	}
	message, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open termination log: %w", err), results.Close())
	}
	return &reporter{
		results: results, message: message, log: log, stop: make(chan struct{}),
		account: account.Account{State: account.StateStarting, Message: "waiting for the Pod's first process"},
	}, nil
}

// start reports at once and then every interval.
func (r *reporter) start(interval time.Duration) {
	r.write()
	r.done.Go(func() {
		for {
			select {
			case <-r.stop:
				return
			case <-time.After(recording.UntilNext(interval)):
				r.write()
			}
		}
	})
}

// waiting says what the probe waits for before it can attach.
func (r *reporter) waiting(message string) {
	r.mu.Lock()
	r.account.Message = message
	r.mu.Unlock()
	r.write()
}

// attached says that an engine counts from now on; live tells which, how much, and in which files it is.
func (r *reporter) attached(live func(*account.Account)) {
	r.mu.Lock()
	r.began = time.Now()
	r.account.State, r.account.Message, r.account.Started = account.StateCapturing, "", r.began.UTC()
	r.live = live
	r.mu.Unlock()
	r.write()
}

// filesChanged tells at once which files there are: the termination message is all that outlives the probe, and must
// neither name a file that is no more, nor leave out the one with the newest packets; the keeper, which counts what a
// killed probe left, takes from the progress file what was overwritten before.
func (r *reporter) filesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.marshal()
	if err == nil {
		r.messaged = time.Now()
		err = errors.Join(r.writeMessage(b), r.writeProgress(b))
	}
	r.failing(err)
}

// concluded takes the final counts, and returns them.
func (r *reporter) concluded(count func(*account.Account)) account.Account {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = nil
	count(&r.account)
	return r.account
}

// finish sets the end, unless there is one.
func (r *reporter) finish(reason string, whole bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.account.State == account.StateDone {
		return
	}
	r.account.State, r.account.Reason, r.account.Ended = account.StateDone, reason, time.Now().UTC()
	if !r.began.IsZero() {
		// As long after the start as it really lasted: the node's clock may have been set meanwhile.
		r.account.Ended = r.account.Started.Add(time.Since(r.began))
	}
	r.account.Complete, r.account.Message = whole, message
}

// close makes the last report and returns the exit code that fits it.
func (r *reporter) close() int {
	close(r.stop)
	r.done.Wait()
	r.mu.Lock()
	r.messaged = time.Time{}
	a := r.account
	r.mu.Unlock()
	r.write()
	if err := errors.Join(r.results.Close(), r.message.Close()); err != nil {
		r.log.Warn("Closing failed", "error", err)
	}
	switch {
	case a.Complete:
		return ExitComplete
	case a.Started.IsZero():
		return ExitFailed
	default:
		return ExitIncomplete
	}
}

// write makes one report. A report that cannot be written must not end a capture that can.
func (r *reporter) write() {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.marshal()
	if err == nil {
		err = r.writeProgress(b)
		if time.Since(r.messaged) >= messageInterval {
			r.messaged = time.Now()
			err = errors.Join(err, r.writeMessage(b))
		}
	}
	r.failing(err)
}

// marshal returns the account with the counts of this moment.
func (r *reporter) marshal() ([]byte, error) {
	if r.live != nil {
		r.live(&r.account)
	}
	return r.account.Marshal()
}

// failing logs an error that is not the last one again.
func (r *reporter) failing(err error) {
	if err != nil && err.Error() != r.failed {
		r.failed = err.Error()
		r.log.Warn("Reporting failed", "error", err)
	}
}

// writeProgress replaces the progress file. On a full disk it writes over the file that is there: its one block is
// allocated already, and the end of a capture must be told even then.
func (r *reporter) writeProgress(b []byte) error {
	const temporary = "." + captureconfig.ProgressFile
	err := r.results.WriteFile(temporary, b, 0o644)
	if err == nil {
		err = r.results.Chmod(temporary, 0o644) // whatever the umask is: the keeper, another user, reads it
	}
	if err == nil {
		err = r.results.Rename(temporary, captureconfig.ProgressFile)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("replace progress file: %w", err), r.overwriteProgress(b))
}

func (r *reporter) overwriteProgress(b []byte) error {
	f, err := r.results.OpenFile(captureconfig.ProgressFile, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("overwrite progress file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("overwrite progress file: %w", err)
	}
	if _, err := f.WriteAt(padded(b, int(min(info.Size(), account.MaxBytes))), 0); err != nil {
		return fmt.Errorf("overwrite progress file: %w", err)
	}
	return nil
}

// writeMessage writes over the termination message. The file is mounted, so it cannot be replaced; one write that is
// never shorter than the last leaves a whole message whenever the process is killed.
func (r *reporter) writeMessage(b []byte) error {
	b = padded(b, r.longest)
	if _, err := r.message.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	r.longest = len(b)
	return nil
}

// padded returns b followed by spaces up to n bytes, which JSON allows.
func padded(b []byte, n int) []byte {
	if len(b) >= n {
		return b
	}
	return append(bytes.Clone(b), bytes.Repeat([]byte{' '}, n-len(b))...)
}
