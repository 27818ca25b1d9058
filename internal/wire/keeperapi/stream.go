package keeperapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/time/rate"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

// ErrStreamCut is returned when a watched progress ends before the capture. Watching again gives the current account.
var ErrStreamCut = errors.New("the keeper's progress ended before the capture was done: watch again")

// A keeper sends at most two lines a second. A keeper that was taken over may send any number, and its lines cost the reader CPU
// time, also the blank ones. A reader that was held up finds maxBurst lines, or more, that have arrived meanwhile.
const (
	maxLinesPerSecond = 10
	maxBurst          = 20
)

// ReadAccounts reads the NDJSON of a watched progress and calls fn with each account, in order; it skips blank lines. It reads no
// more than maxLinesPerSecond, and leaves the others with the sender. It returns nil after an account of state done, fn's error, an
// error for a line that is not an account, or ErrStreamCut with the error of r or ctx when one of them ends.
func ReadAccounts(ctx context.Context, r io.Reader, fn func(account.Account) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1024), account.MaxBytes+2)
	pace := rate.NewLimiter(maxLinesPerSecond, maxBurst)
	for lines.Scan() {
		if err := pace.Wait(ctx); err != nil {
			return fmt.Errorf("%w (%w)", ErrStreamCut, err)
		}
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		a, err := account.Parse(line)
		if err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		if err := fn(a); err != nil {
			return err
		}
		if a.State == account.StateDone {
			return nil
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("read progress: a line of more than %d bytes", account.MaxBytes)
	case err != nil:
		return fmt.Errorf("%w (%w)", ErrStreamCut, err)
	}
	return ErrStreamCut
}
