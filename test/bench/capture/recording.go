package capture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Recording is a running capture by Sonde's BPF programs, for measurements of what reads its file.
type Recording struct{ *sondeProcess }

// Record captures a namespace into dir.
func Record(ctx context.Context, b *host.Env, namespace *os.File, dir, filter string) (*Recording, error) {
	p, err := startSonde(ctx, b, &job{dir: dir, filter: filter, namespace: namespace}, captureconfig.EngineBPF)
	if err != nil {
		return nil, err
	}
	return &Recording{p}, nil
}

// File returns the name of the file in Results.
func (r *Recording) File() (string, error) {
	a, err := r.Account()
	if err != nil {
		return "", err
	}
	if len(a.Files) != 1 {
		return "", fmt.Errorf("the capture has %d files", len(a.Files))
	}
	return filepath.Base(a.Files[0].Name), nil
}

// Stop ends the capture, and returns an error if its account does not add up.
func (r *Recording) Stop(ctx context.Context) error {
	_, err := r.stop(ctx)
	return err
}

// Kill ends the capture after a failed measurement.
func (r *Recording) Kill() { host.Kill(r.node) }
