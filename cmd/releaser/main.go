// Command releaser makes one attempt to bring a Helm release to what the manager requested, and reports the result in its termination
// message. It runs in a Job in the release's namespace, under a ServiceAccount of that namespace. Helm and the charts that it renders
// are kept out of the manager: a bad chart can end nothing but this process.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

func main() {
	logTo(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "releaser:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and its signal handler with it
	}
}

// logTo sets the log. It hides secrets, also in warnings of the API server: a policy may quote an object that it warns of.
func logTo(w io.Writer) {
	slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: secrets.hideAttr})))
	rest.SetDefaultWarningHandler(warnings{})
}

// warningCode is the only one that the API server sends: a persistent warning (RFC 7234, section 5.5).
const warningCode = 299

// warnings logs each warning that the API server adds to a response.
type warnings struct{}

// HandleWarningHeader implements rest.WarningHandler.
func (warnings) HandleWarningHeader(code int, _, text string) {
	if code == warningCode && text != "" {
		slog.Warn("Received a warning of the API server", "text", text)
	}
}

// spareTime is what an attempt may take beyond the timeout: hooks, and looking at the objects. The Job's deadline is a minute later.
const spareTime = 2 * time.Minute

// run fails only if it can report nothing. Whether the release succeeded is in the report, so that the Job does not fail: its
// container's exit code would say less.
func run(ctx context.Context) error {
	b, err := os.ReadFile(release.RequestPath)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	q, err := release.ParseRequest(b)
	if err != nil {
		return err
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.Namespace = &q.Namespace
	a, err := newAttempt(q, flags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(q.Install, q.Upgrade))*time.Second+spareTime)
	defer cancel()
	identity, err := os.Hostname() // the Pod's name
	if err != nil {
		return fmt.Errorf("read the name of the Pod: %w", err)
	}
	held := &lock{configMaps: a.configMaps, anchor: q.Anchor, identity: identity}
	times := leaderelection.LeaderElectionConfig{LeaseDuration: lockTime, RenewDeadline: renewTime, RetryPeriod: renewEvery}
	// Without the lock the process must end soon, also if the disk or the log hangs.
	lost := func() { time.AfterFunc(renewEvery, func() { os.Exit(1) }) }
	report, err := whileLocked(ctx, held, times, lost, a.make)
	if err != nil {
		return err
	}
	report.Message = secrets.hide(report.Message)
	slog.Info("Ended the attempt", "outcome", report.Outcome, "reason", report.Reason, "message", report.Message)
	if b, err = report.Marshal(); err != nil {
		return err
	}
	if err := os.WriteFile(release.ReportPath, b, 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
