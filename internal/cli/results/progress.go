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

// maxLine bounds one line of the progress stream: an account and a few names.
const maxLine = 64 << 10

// errIdle ends a connection on which nothing came for too long.
var errIdle = errors.New("the results endpoint has fallen silent")

// Update is one Pod's state now.
type Update struct {
	Pod   string
	UID   string
	Node  string
	Phase v1alpha1.Phase
	// Account is nil when the Pod's agent could not be asked; Error then says why.
	Account *account.Account
	Error   string
}

// Progress calls each for every line of the progress stream: one per Pod at once, then one per
// change. It returns nil when all Pods have ended, else why the stream broke.
func (c *Client) Progress(ctx context.Context, each func(Update)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.get(ctx, nil, "progress")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(watch(resp.Body, c.timing.Idle, cancel))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 { // a heartbeat
			continue
		}
		u, err := parseUpdate(line)
		if err != nil {
			return err
		}
		each(u)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read progress: %w", cause(ctx, err))
	}
	return nil
}

// parseUpdate reads one line. An account that cannot be read becomes the update's Error, so that one
// Pod's agent of another version does not hide the others.
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
		return Update{}, errors.New("read progress: a line without a Pod's UID; is the operator newer than this plugin?")
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

// watched cancels its request when nothing has been read for idle.
type watched struct {
	r     io.Reader
	timer *time.Timer
	idle  time.Duration
}

func watch(r io.Reader, idle time.Duration, cancel context.CancelCauseFunc) *watched {
	return &watched{r: r, idle: idle, timer: time.AfterFunc(idle, func() { cancel(errIdle) })}
}

// Read reads and, when something came, starts the time of silence anew.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.r.Read(b)
	if err != nil {
		w.timer.Stop()
	} else if n > 0 {
		w.timer.Reset(w.idle)
	}
	return n, err
}

// cause prefers the reason for which ctx was cancelled to the error that this led to.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}
