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

// messageInterval is the shortest time between two writes of the termination message, except the last one.
const messageInterval = time.Second

// reporter writes the account to the progress file and to the termination log.
type reporter struct {
	results *os.Root
	message *os.File
	log     *slog.Logger

	stop chan struct{}
	done sync.WaitGroup

	mu         sync.Mutex
	account    account.Account
	live       func(*account.Account) // sets the current counts; nil unless something is recorded
	began      time.Time              // with a monotonic clock reading, which UTC() removes
	messageLen int                    // length of the longest termination message so far, in bytes
	messaged   time.Time              // when the last termination message was written
	lastError  string                 // the last error that was logged
}

// newReporter opens both files.
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

// attached reports that recording has begun; live sets engine, counts and files in an account.
func (r *reporter) attached(live func(*account.Account)) {
	r.mu.Lock()
	r.began = time.Now()
	r.account.State, r.account.Message, r.account.Started = account.StateCapturing, "", r.began.UTC()
	r.live = live
	r.mu.Unlock()
	r.write()
}

// gateOpened reports which container's gate the attached probe has opened.
func (r *reporter) gateOpened(containerID string) {
	r.mu.Lock()
	r.account.Gate = containerID
	r.mu.Unlock()
	r.write()
}

// asked reports that the keeper ended the recording.
func (r *reporter) asked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.Asked = true
}

// filesChanged reports a change of a ring's files at once. If the probe is killed, the termination message must name
// exactly the existing files. The keeper then counts the files, and reads the number of overwritten packets from the
// progress file.
func (r *reporter) filesChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.marshal()
	if err == nil {
		r.messaged = time.Now()
		err = errors.Join(r.writeMessage(b), r.writeProgress(b))
	}
	r.logOnce(err)
}

// final sets the final counts, and returns the account.
func (r *reporter) final(count func(*account.Account)) account.Account {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = nil
	count(&r.account)
	return r.account
}

// finish sets the end of the capture, unless it is already set.
func (r *reporter) finish(reason string, complete bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.account.State == account.StateDone {
		return
	}
	r.account.State, r.account.Reason, r.account.Ended = account.StateDone, reason, time.Now().UTC()
	if !r.began.IsZero() {
		// By the monotonic clock: the node's clock may have been set during the capture.
		r.account.Ended = r.account.Started.Add(time.Since(r.began))
	}
	r.account.Complete, r.account.Message = complete, message
}

// close makes the last report and returns the exit code.
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

// write makes one report. If it fails the capture continues.
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
	r.logOnce(err)
}

// marshal returns the account with the current counts.
func (r *reporter) marshal() ([]byte, error) {
	if r.live != nil {
		r.live(&r.account)
	}
	return r.account.Marshal()
}

// logOnce logs an error, unless it repeats the last one.
func (r *reporter) logOnce(err error) {
	if err != nil && err.Error() != r.lastError {
		r.lastError = err.Error()
		r.log.Warn("Reporting failed", "error", err)
	}
}

// writeProgress replaces the progress file. On a full disk it overwrites the file, whose block is already allocated,
// because the end of a capture must be reported even then.
func (r *reporter) writeProgress(b []byte) error {
	const temporary = "." + captureconfig.ProgressFile
	err := r.results.WriteFile(temporary, b, 0o644)
	if err == nil {
		err = r.results.Chmod(temporary, 0o644) // despite the umask: the keeper reads it as another user
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

// writeMessage overwrites the termination message. Its file is a mount and cannot be replaced. One write that is never
// shorter than the last one leaves a complete message even if the process is killed.
func (r *reporter) writeMessage(b []byte) error {
	b = padded(b, r.messageLen)
	if _, err := r.message.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	r.messageLen = len(b)
	return nil
}

// padded returns b followed by spaces up to n bytes, which JSON allows.
func padded(b []byte, n int) []byte {
	if len(b) >= n {
		return b
	}
	return append(bytes.Clone(b), bytes.Repeat([]byte{' '}, n-len(b))...)
}
