// Command releaser makes one attempt to bring a Helm release to what the manager requested, and reports the result in its termination
// message. It runs in a Job in the release's namespace, under a ServiceAccount of that namespace. Helm and the charts that it renders
// are kept out of the manager: a bad chart can end nothing but this process.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "releaser:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and its signal handler with it
	}
}

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
	report := a.make(ctx)
	slog.Info("Ended the attempt", "outcome", report.Outcome, "reason", report.Reason, "message", report.Message)
	if b, err = report.Marshal(); err != nil {
		return err
	}
	if err := os.WriteFile(release.ReportPath, b, 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
