package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
)

const (
	refresh = 200 * time.Millisecond
	retry   = 2 * time.Second
	// cleanup is how long taking away what is not needed any more may last.
	cleanup = 10 * time.Second
)

// saving is what a command wants done with a capture that has ended.
type saving struct {
	out  capture.Output
	json bool
	// lines of a trace are shown while it runs, in colour or not.
	lines  lineForm
	colour bool
	// stoppable: the first interrupt stops the capture; else it only ends the plugin.
	stoppable bool
	// remove the capture when everything that it has is saved.
	remove bool
}

// attach follows a capture until it has ended, saves it, reports, and cleans up. It is the rest of
// capture and the whole of download.
func (p *plugin) attach(ctx context.Context, conn *connection, c v1alpha1.Capture, how saving) error {
	// A reader that leaves early, like head, must not end this without a word, and with the packets left in the
	// cluster.
	signal.Ignore(syscall.SIGPIPE)
	access := results.NewAccess(conn.client, p.clock, c)
	defer p.closeAccess(ctx, access)
	endpoint, err := results.NewClient(conn.config, p.operatorNamespace, c, access, results.DefaultTiming)
	if err != nil {
		return err
	}
	display := p.display()
	s := capture.NewState(c, p.clock.Now())
	lines := p.showLines(ctx, endpoint, display, how)
	saved, err := p.followAndSave(ctx, &attachment{conn, endpoint, display, lines}, s, how)
	display.Close()
	if err != nil {
		return p.left(s.Capture, err)
	}
	r := report.New(s.Capture, s.Pods(), saved)
	lines.note(saved, &r)
	err = p.print(r, saved, how)
	p.remove(ctx, conn, s.Capture, r, how)
	if err != nil {
		return err
	}
	if code := r.ExitCode(); code != report.ExitOK {
		return exitCode(code)
	}
	return nil
}

// attachment is what a capture is followed by, and where it is shown.
type attachment struct {
	conn     *connection
	endpoint *results.Client
	display  live.Display
	lines    *shownLines
}

func (p *plugin) followAndSave(ctx context.Context, a *attachment, s *capture.State, how saving) (capture.Saved, error) {
	if err := p.follow(ctx, a, s, how); err != nil {
		return capture.Saved{}, err
	}
	endpoint, display := a.endpoint, a.display
	var shown time.Time
	show := func() {
		if now := p.clock.Now(); now.Sub(shown) >= refresh { // a transfer tells of every 32 KiB
			shown = now
			display.Show(s.View(now))
		}
	}
	saver := &capture.Saver{
		Download: endpoint.Download, Summarize: !how.json,
		OnProgress: func(uid string, done, total int64) {
			s.Activity = "Downloading"
			s.Downloading(uid, done, total)
			show()
		},
		OnMerge: func() {
			s.Activity = "Merging"
			shown = time.Time{}
			show()
		},
	}
	saved, err := saver.Save(ctx, s.Pods(), how.out)
	s.Activity = ""
	display.Show(s.View(p.clock.Now()))
	return saved, err
}

// follow shows a capture until it has ended, and the last of its lines.
func (p *plugin) follow(ctx context.Context, a *attachment, s *capture.State, how saving) error {
	follower := &capture.Follower{
		Client: a.conn.client, Progress: a.endpoint.Progress, OnUpdate: a.lines.heard, Display: a.display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	if how.stoppable {
		follower.Stop = p.interrupts.claim()
	}
	err := follower.Follow(ctx, s)
	p.interrupts.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err != nil {
		cancel() // nothing more is to be seen
	} else {
		a.lines.rest(s.Pods())
	}
	a.lines.finish(ctx)
	return err
}

// left adds to an error what can still be done about the capture.
func (p *plugin) left(c v1alpha1.Capture, err error) error {
	if errors.Is(err, capture.ErrDeleted) {
		return err
	}
	ends := "ends by itself. "
	if common := c.Common(); common.Duration == "" && !common.Stop && !c.CaptureStatus().Phase.Final() {
		ends = "goes on. To end it:\n  " + p.commandFor("stop", c) + "\n"
	}
	fmt.Fprintf(p.streams.ErrOut, "%s %s is still there, and %sTo fetch its %s:\n  %s\n",
		c.KindName(), client.ObjectKeyFromObject(c), ends, capture.UnitOf(c).Count(), p.commandFor("download", c))
	return err
}

func (p *plugin) print(r report.Report, saved capture.Saved, how saving) error {
	if how.json {
		return writeJSON(p.streams.Out, r)
	}
	w, text := p.streams.Out, r.Text()
	switch {
	case how.out.Streams() || how.lines == linesJSON: // the events have the standard output
		w = p.streams.ErrOut
	case saved.Trace != nil:
		text = saved.Trace.Text() + "\n" + text // it may be long, and what matters most is seen at the end
		if how.lines == linesText && p.terminal == nil {
			text = "\n" + text
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	return nil
}

// remove deletes the capture, and says so where it does not.
func (p *plugin) remove(ctx context.Context, conn *connection, c v1alpha1.Capture, r report.Report, how saving) {
	if !how.remove {
		return
	}
	key, uid := client.ObjectKeyFromObject(c), c.GetUID()
	if !r.AllSaved() {
		fmt.Fprintf(p.streams.ErrOut, "%s %s is kept, as not everything was saved. To try again:\n  %s\n", c.KindName(), key, p.commandFor("download", c))
		return
	}
	// The user may have interrupted by now; this is wanted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	err := conn.client.Delete(ctx, c, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		fmt.Fprintf(p.streams.ErrOut, "%s %s is left over: %s\n", c.KindName(), key, describe(err))
	}
}

func (p *plugin) closeAccess(ctx context.Context, access *results.Access) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = access.Close(ctx) // it ends by itself within minutes
}
