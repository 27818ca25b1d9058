package cli

import (
	"bytes"
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
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

const (
	refresh = 200 * time.Millisecond
	retry   = 2 * time.Second
	// cleanup is the timeout for deleting objects at the end.
	cleanup = 10 * time.Second
)

// saveOptions say how a command shows a capture, and what it does when the capture has ended.
type saveOptions struct {
	out  capture.Output
	json bool
	// lines is how events of a trace are shown while it runs, and colour whether they are coloured.
	lines  lineFormat
	colour bool
	// stream writes packets while they are captured, unless it is nil. If out is a stream, too, nothing is saved afterwards.
	stream *streamOptions
	// top shows a table of what is busiest while the capture runs.
	top bool
	// stoppable says that the first interrupt stops the capture. Otherwise it only ends the plugin.
	stoppable bool
	// remove deletes the capture when everything is saved.
	remove bool
}

// attach follows a capture until it has ended, saves it, prints the report, and deletes the capture if asked to. The
// commands capture, trace and download share it.
func (p *plugin) attach(ctx context.Context, conn *connection, c v1alpha1.Capture, opts saveOptions) error {
	r, saved, err := p.collect(ctx, conn, c, opts)
	if err != nil {
		return err
	}
	err = p.print(r, saved, opts)
	p.remove(ctx, conn, c, r, opts)
	if err != nil {
		return err
	}
	if code := r.ExitCode(); code != report.ExitOK {
		return exitCode(code)
	}
	return nil
}

// collect follows a capture until it has ended, and saves it.
func (p *plugin) collect(ctx context.Context, conn *connection, c v1alpha1.Capture, opts saveOptions) (report.Report, capture.Saved, error) {
	fail := func(err error) (report.Report, capture.Saved, error) {
		return report.Report{}, capture.Saved{}, p.printRemaining(c, err)
	}
	a, err := p.newSession(ctx, conn, c, opts.stream != nil)
	if err != nil {
		return fail(err)
	}
	defer a.close(ctx)
	if opts.top {
		if a.display, err = p.newTopView(c); err != nil {
			return fail(err)
		}
	}
	a.endpoint.OnBusy = func(reason string) { a.display.PrintLine("Waiting to download: " + reason) }
	if opts.out.Form == capture.PCAPNG && !opts.out.Separate {
		a.addresses = newAddressNames(ctx, conn.names, c)
	}
	if a.with, err = p.newCompanions(ctx, a, c, opts); err != nil {
		a.display.Close()
		return fail(err)
	}
	s := capture.NewState(c, p.clock.Now())
	saved, err := p.followAndSave(ctx, a, s, opts)
	a.display.Close()
	if err != nil {
		return report.Report{}, saved, p.printRemaining(s.Capture, err)
	}
	r := report.New(s.Capture, s.Pods(), saved)
	a.with.addNotes(saved, &r)
	a.addresses.addNote(&r)
	return r, saved, nil
}

// session holds the connections and displays of a command that follows a capture.
type session struct {
	conn      *connection
	access    *results.Access
	endpoint  *results.Client
	display   live.Display
	with      *companions
	addresses *addressNames // may be nil
}

// newSession returns a session without companions. If it is for a stream, it fails without the right to the results: a stream would wait
// for the end of the capture.
func (p *plugin) newSession(ctx context.Context, conn *connection, c v1alpha1.Capture, streams bool) (*session, error) {
	// If the reader of a pipe exits early, as head does, the plugin must still report and clean up the
	// cluster.
	signal.Ignore(syscall.SIGPIPE)
	a := &session{conn: conn, access: results.NewAccess(conn.client, p.clock, c), display: p.display(p.streams.ErrOut)}
	var err error
	if a.endpoint, err = results.NewClient(conn.config, p.operatorNamespace, c, a.access, results.DefaultTiming, len(c.CaptureStatus().Pods)); err != nil {
		return nil, err
	}
	if streams {
		if _, err := a.access.Token(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// close ends the access to the results, even if the user has interrupted.
func (a *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = a.access.Close(ctx) // it expires within minutes
}

func (p *plugin) followAndSave(ctx context.Context, a *session, s *capture.State, opts saveOptions) (capture.Saved, error) {
	if err := p.follow(ctx, a, s, opts); err != nil {
		return capture.Saved{}, err
	}
	if a.with.stream != nil && opts.out.Streams() {
		return a.with.stream.saved(s.Pods(), opts.stream.complete)
	}
	endpoint, display := a.endpoint, a.display
	var shown time.Time
	show := func() {
		if now := p.clock.Now(); now.Sub(shown) >= refresh { // a download reports every 32 KiB
			shown = now
			display.Show(s.View(now))
		}
	}
	maxBytes, maxTotal := capture.Bounds(s.Capture)
	saver := &capture.Saver{
		Download: endpoint.Download, MaxBytes: maxBytes, MaxTotal: maxTotal, Summarize: !opts.json,
		Names: func(ctx context.Context) *pcapng.Names { return a.addresses.final(ctx, s.Capture) },
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
	saved, err := saver.Save(ctx, s.Pods(), opts.out)
	s.Activity = ""
	if err == nil && saved.Path != "" {
		s.Activity = "Saved" // the status was shown before the download
	}
	display.Show(s.View(p.clock.Now()))
	return saved, err
}

// follow shows a capture, with its companions, until it has ended.
func (p *plugin) follow(ctx context.Context, a *session, s *capture.State, opts saveOptions) error {
	follower := &capture.Follower{
		Client: a.conn.client, Progress: a.endpoint.Progress, OnUpdate: a.with.update, Display: a.display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	if opts.stoppable {
		follower.Stop = p.interrupts.claim()
	}
	err := follower.Follow(ctx, s)
	p.interrupts.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err != nil {
		cancel() // the remaining events are not shown
	} else {
		a.with.addEnded(s.Pods())
	}
	a.with.finish(ctx)
	return err
}

// printRemaining prints what the user can still do with the capture after an error, and returns the error.
func (p *plugin) printRemaining(c v1alpha1.Capture, err error) error {
	if errors.Is(err, capture.ErrDeleted) {
		return err
	}
	state, fate := "still exists and", "ends by itself. "
	if errors.Is(err, capture.ErrNotServed) {
		state = "may still exist. If so, it"
	}
	if common := c.Common(); common.Duration == "" && !common.Stop && !c.CaptureStatus().Phase.Final() {
		fate = "continues. To stop it:\n  " + p.commandFor("stop", c) + "\n"
	}
	fmt.Fprintf(p.streams.ErrOut, "%s %s %s %sTo fetch its %s:\n  %s\n",
		c.KindName(), client.ObjectKeyFromObject(c), state, fate, capture.UnitOf(c).Count(), p.commandFor("download", c))
	return err
}

func (p *plugin) print(r report.Report, saved capture.Saved, opts saveOptions) error {
	if opts.json {
		return p.writeJSON(r)
	}
	w, text := p.streams.Out, r.Text()
	switch {
	case opts.out.Streams() || opts.lines == linesJSON || opts.stream != nil && !opts.stream.wireshark: // records use standard output
		w = p.streams.ErrOut
	case saved.Trace != nil:
		text = saved.Trace.Text() + "\n" + text // it may be long, and the end of the output is most visible
		if opts.lines == linesText && p.terminal == nil {
			text = "\n" + text
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

// writeJSON prints a value. On a terminal it escapes what is not printable, because a file may have any text.
func (p *plugin) writeJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	text := b.Bytes()
	if p.width != nil {
		text = table.AppendPrintableJSON(nil, text)
	}
	if _, err := p.streams.Out.Write(text); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	return nil
}

// remove deletes the capture if everything is saved, and otherwise prints why not.
func (p *plugin) remove(ctx context.Context, conn *connection, c v1alpha1.Capture, r report.Report, opts saveOptions) {
	if !opts.remove {
		return
	}
	key, uid := client.ObjectKeyFromObject(c), c.GetUID()
	if !r.AllSaved() {
		fmt.Fprintf(p.streams.ErrOut, "%s %s is kept because not everything was saved. To retry:\n  %s\n", c.KindName(), key, p.commandFor("download", c))
		return
	}
	// The capture is deleted even if the user has interrupted meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	err := conn.client.Delete(ctx, c, client.Preconditions{UID: &uid})
	if gone.Ignore(err) != nil {
		fmt.Fprintf(p.streams.ErrOut, "%s %s could not be deleted: %s\n", c.KindName(), key, clause(err))
	}
}
