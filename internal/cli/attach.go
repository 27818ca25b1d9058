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
	// stoppable: the first interrupt stops the capture; else it only ends the plugin.
	stoppable bool
	// remove the capture when everything that it has is saved.
	remove bool
}

// attach follows a capture until it has ended, saves it, reports, and cleans up. It is the rest of
// capture and the whole of download.
func (p *plugin) attach(ctx context.Context, conn *connection, c v1alpha1.Capture, how saving) error {
	// A reader that leaves early, like head, must not end this without a word, and with the packets left in the cluster.
	signal.Ignore(syscall.SIGPIPE)
	access := results.NewAccess(conn.client, p.clock, c)
	defer p.closeAccess(ctx, access)
	endpoint, err := results.NewClient(conn.config, p.operatorNamespace, c, access, results.DefaultTiming)
	if err != nil {
		return err
	}
	display := p.display()
	s := capture.NewState(c, p.clock.Now())
	saved, err := p.followAndSave(ctx, conn, endpoint, display, s, how)
	display.Close()
	if err != nil {
		return p.left(s.Capture, err)
	}
	r := report.New(s.Capture, s.Pods(), saved)
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

func (p *plugin) followAndSave(ctx context.Context, conn *connection, endpoint *results.Client, display live.Display,
	s *capture.State, how saving,
) (capture.Saved, error) {
	follower := &capture.Follower{
		Client: conn.client, Progress: endpoint.Progress, Display: display, Clock: p.clock, Refresh: refresh, Retry: retry,
	}
	if how.stoppable {
		follower.Stop = p.interrupts.claim()
	}
	err := follower.Follow(ctx, s)
	p.interrupts.release()
	if err != nil {
		return capture.Saved{}, err
	}
	var shown time.Time
	show := func() {
		if now := p.clock.Now(); now.Sub(shown) >= refresh { // a transfer tells of every 32 KiB
			shown = now
			display.Show(s.View(now))
		}
	}
	saver := &capture.Saver{
		Download: endpoint.Download, SumUp: !how.json,
		Fetching: func(uid string, done, total int64) {
			s.Activity = "Downloading"
			s.Fetching(uid, done, total)
			show()
		},
		Merging: func() {
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
		c.CaptureKind(), client.ObjectKeyFromObject(c), ends, capture.UnitOf(c).Count(), p.commandFor("download", c))
	return err
}

func (p *plugin) print(r report.Report, saved capture.Saved, how saving) error {
	if how.json {
		return writeJSON(p.streams.Out, r)
	}
	w := p.streams.Out
	if how.out.Streams() {
		w = p.streams.ErrOut
	}
	text := r.Text()
	if saved.Trace != nil && !how.out.Streams() {
		text = saved.Trace.Text() + "\n" + text // it may be long, and what matters most is seen at the end
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
	if !r.Everything() {
		fmt.Fprintf(p.streams.ErrOut, "%s %s is kept, as not everything was saved. To try again:\n  %s\n", c.CaptureKind(), key, p.commandFor("download", c))
		return
	}
	// The user may have interrupted by now; this is wanted all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	err := conn.client.Delete(ctx, c, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		fmt.Fprintf(p.streams.ErrOut, "%s %s is left over: %s\n", c.CaptureKind(), key, describe(err))
	}
}

func (p *plugin) closeAccess(ctx context.Context, access *results.Access) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	_ = access.Close(ctx) // it ends by itself within minutes
}
