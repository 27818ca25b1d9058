package results

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// maxLine is the longest line of the progress stream in bytes. A line has an account and a few names.
const maxLine = 64 << 10

// errIdle ends a connection that was silent for too long.
var errIdle = errors.New("the results endpoint stopped sending")

// Update is the current state of one Pod.
type Update struct {
	Pod   string
	UID   string
	Node  string
	Phase v1alpha1.Phase
	// Account is nil if the Pod's agent did not answer; Error then says why.
	Account *account.Account
	Error   string
}

// Progress calls each for every line of the progress stream: one for each Pod at first, then one for each change. It
// returns nil when all Pods have ended, or else the reason why the stream ended. It continues a stream that breaks off
// after its first line, because the manager ends each after some minutes. Each line is the whole state of a Pod, so nothing
// is lost between two streams.
func (c *Client) Progress(ctx context.Context, each func(Update)) error {
	for {
		some, err := c.progress(ctx, each)
		if !some || !errors.Is(err, errBroken) || ctx.Err() != nil {
			return err
		}
		if err := wait(ctx, c.timing.Pause); err != nil {
			return err
		}
	}
}

// errBroken says that a connection ended before its stream.
var errBroken = errors.New("read progress")

// progress reads one connection. some says that it had a line.
func (c *Client) progress(ctx context.Context, each func(Update)) (some bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.get(ctx, nil, "progress")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(newIdleReader(resp.Body, c.timing.Idle, cancel))
	lines.Buffer(nil, maxLine)
	lines.Split(scanLines)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 { // a heartbeat
			continue
		}
		u, err := parseUpdate(line)
		if err != nil {
			return some, err
		}
		some = true
		each(u)
	}
	switch err := lines.Err(); {
	case err == nil:
		return some, nil
	case errors.Is(err, bufio.ErrTooLong):
		return some, fmt.Errorf("read progress: %w", err)
	default:
		return some, fmt.Errorf("%w: %w", errBroken, cause(ctx, err))
	}
}

// parseUpdate reads one line. An account that cannot be parsed becomes the Error of the update, so that one agent of
// another version does not hide the other Pods.
func parseUpdate(line []byte) (Update, error) {
	var l struct {
		Pod     string          `json:"pod"`
		UID     string          `json:"uid"`
		Node    string          `json:"node"`
		Phase   v1alpha1.Phase  `json:"phase"`
		Account json.RawMessage `json:"account"`
		Error   string          `json:"error"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return Update{}, fmt.Errorf("read progress: %w", err)
	}
	if l.UID == "" {
		return Update{}, errors.New("read progress: a line has no Pod UID: the operator may be newer than this plugin, update kubectl-sonde")
	}
	u := Update{Pod: l.Pod, UID: l.UID, Node: l.Node, Phase: l.Phase, Error: l.Error}
	if len(l.Account) > 0 && !bytes.Equal(l.Account, []byte("null")) {
		if a, err := account.Parse(l.Account); err != nil {
			u.Error = err.Error()
		} else {
			u.Account = &a
		}
	}
	return u, nil
}

// idleReader cancels its request if nothing is read within idle.
type idleReader struct {
	r     io.Reader
	timer *time.Timer
	idle  time.Duration
}

func newIdleReader(r io.Reader, idle time.Duration, cancel context.CancelCauseFunc) *idleReader {
	w := &idleReader{r: r, idle: idle, timer: time.AfterFunc(idle, func() { cancel(errIdle) })}
	w.timer.Stop()
	return w
}

// Read reads, and ends the connection if nothing comes. The time between two reads does not count: whoever uses the bytes may be slow.
func (w *idleReader) Read(b []byte) (int, error) {
	w.timer.Reset(w.idle)
	defer w.timer.Stop()
	return w.r.Read(b)
}

// cause returns the cause of ctx, or err if ctx is not cancelled.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}
