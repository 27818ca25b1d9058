package keeperapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

// ErrStreamCut says that a watched progress ended before the capture did. Watching again gives the current account.
var ErrStreamCut = errors.New("the keeper's progress ended before the capture was done: watch again")

// ReadAccounts reads the NDJSON of a watched progress and calls fn with each account, in order, until one of state
// done (nil), fn fails (its error), a line is no account of at most account.MaxBytes, or r ends (ErrStreamCut, with
// r's own error if it has one). Blank lines are skipped.
func ReadAccounts(r io.Reader, fn func(account.Account) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1024), account.MaxBytes+2)
	for lines.Scan() {
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
