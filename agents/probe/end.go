package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// maxReason is how many bytes of the stop file are read.
const maxReason = 64

// stopRequest is the cause of a requested end; its text is one of account's reasons.
type stopRequest string

// Error implements error.
func (r stopRequest) Error() string {
	if string(r) == account.ReasonDrained {
		return "the agent's Pod was terminated: its node may be drained"
	}
	return "asked to end: " + string(r)
}

// awaitStop ends the capture when the keeper writes the stop file. It also reads the follow file.
func (p *Probe) awaitStop(ctx context.Context, end context.CancelCauseFunc) {
	path := filepath.Join(p.options.ControlDir, captureconfig.StopFile)
	failed := false
	for {
		switch b, err := readSmall(path); {
		case err == nil:
			end(stopRequest(parseReason(b)))
			return
		case !errors.Is(err, fs.ErrNotExist) && !failed:
			failed = true // log it once
			p.log.Warn("Reading the stop file failed", "error", err)
		}
		p.follow.look()
		select {
		case <-ctx.Done():
			return
		case <-time.After(recording.UntilNext(p.waits.stop)):
		}
	}
}

// readSmall reads a regular file of the control volume, of a few bytes. The volume's writer has fewer rights than this process, so that it must
// not follow a link or wait for a FIFO.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", filepath.Base(path), err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file but %v", filepath.Base(path), info.Mode().Type())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxReason))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return b, nil
}

// parseReason returns the reason in the stop file. For an unknown reason it returns ReasonStopped, because the file
// alone is a request to stop.
func parseReason(b []byte) string {
	reason := string(bytes.TrimSpace(b))
	if slices.Contains([]string{account.ReasonTargetGone, account.ReasonAccessRevoked, account.ReasonPaused}, reason) {
		return reason
	}
	return account.ReasonStopped
}

// awaitTarget ends the capture when the target has left.
func (p *Probe) awaitTarget(ctx context.Context, end context.CancelCauseFunc, inode uint64) {
	switch err := p.target.gone(ctx, inode); {
	case ctx.Err() != nil:
	case errors.Is(err, errNewSandbox):
		end(err)
	case err != nil:
		// The capture continues: its duration ends it, too.
		p.log.Error("Watching the target failed", "error", err)
	default:
		end(recording.ErrTargetGone)
	}
}

// reasonOf returns the account's reason for a cause.
func reasonOf(cause error) string {
	var request stopRequest
	switch {
	case errors.As(cause, &request):
		return string(request)
	case errors.Is(cause, recording.ErrTargetGone):
		return account.ReasonTargetGone
	case errors.Is(cause, errNewSandbox):
		return account.ReasonTargetNotGone
	default:
		return account.ReasonProbeError
	}
}

// engineReasons maps the engine's reasons to the account's. Stopped is missing: the context's cause says who requested
// the stop.
var engineReasons = map[recording.Reason]string{
	recording.Duration:    account.ReasonDuration,
	recording.PacketLimit: account.ReasonPacketLimit,
	recording.ByteLimit:   account.ReasonByteLimit,
	recording.EventLimit:  account.ReasonEventLimit,
	recording.TargetGone:  account.ReasonTargetGone,
	recording.DiskFull:    account.ReasonDiskFull,
	recording.Error:       account.ReasonProbeError,
}

// asRequested are the reasons of captures that ended as they should. The reasons about interfaces replace them, because they
// tell the user more.
var asRequested = []string{
	account.ReasonDuration, account.ReasonStopped, account.ReasonPacketLimit, account.ReasonByteLimit, account.ReasonTargetGone,
}

// notWhole are the reasons of captures that an error or another actor cut short, where the engine only knows that it was stopped.
var notWhole = []string{account.ReasonDrained, account.ReasonProbeError, account.ReasonTargetNotGone}

// conclusion returns why a recording ended, whether its files and account are complete, and a message for the user.
func conclusion(o *outcome, cause error) (reason string, complete bool, message string) {
	reason, ok := engineReasons[o.reason]
	if !ok {
		reason = reasonOf(cause)
	}
	switch asked := slices.Contains(asRequested, reason); {
	case asked && o.gap:
		reason = account.ReasonInterfaceMissed
	case asked && o.missing:
		reason = account.ReasonInterfaceNotFound
	}
	complete = o.reason.Complete() && !slices.Contains(notWhole, reason)
	switch {
	case o.err != nil:
		message = o.err.Error()
	case !complete && cause != nil:
		message = cause.Error()
	default:
		message = o.notes
	}
	var a account.Account
	if o.count(&a); !a.AddsUp() {
		complete = false
		message = strings.TrimSpace(fmt.Sprintf("the account does not add up: seen %d, in files %d, overwritten %d, dropped %d: please report this. %s",
			a.Seen, a.Packets+a.Events, a.Overwritten, a.Dropped()+a.LostEvents(), message))
	}
	return reason, complete, message
}
