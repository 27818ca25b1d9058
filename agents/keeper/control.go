package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sonde-operator/sonde/internal/captureconfig"
)

// control is the volume through which the probe is told to stop.
type control struct {
	root *os.Root
}

func openControl(path string) (*control, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open control volume %s: %w", path, err)
	}
	return &control{root: root}, nil
}

func (c *control) close() error { return c.root.Close() }

// stop leaves the reason for the probe. The file appears whole or not at all, and the first reason stands.
func (c *control) stop(reason string) error {
	temporary := captureconfig.StopFile + "." + rand.Text()
	if err := c.root.WriteFile(temporary, []byte(reason), 0o644); err != nil {
		return fmt.Errorf("write stop request: %w", err)
	}
	linkErr := c.root.Link(temporary, captureconfig.StopFile)
	if errors.Is(linkErr, fs.ErrExist) {
		linkErr = nil
	}
	if err := errors.Join(linkErr, c.root.Remove(temporary)); err != nil {
		return fmt.Errorf("publish stop request: %w", err)
	}
	return nil
}
