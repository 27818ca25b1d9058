package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

const (
	// preparedFile becomes the stop file. It is written when the volume is opened, so that its block on the disk is
	// there when the disk is full: a capture must end when its requester's right does, whatever fills the disk.
	preparedFile = "." + captureconfig.StopFile
	// preparedBytes is more than the longest reason.
	preparedBytes = 64
)

// control is the volume through which the probe is told to stop.
type control struct {
	root *os.Root
	mu   sync.Mutex // of stop
}

func openControl(path string) (*control, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open control volume %s: %w", path, err)
	}
	c := &control{root: root}
	// A keeper that was started again finds the file of its stop request, which is the prepared one: that stays.
	if _, err := root.Lstat(captureconfig.StopFile); errors.Is(err, fs.ErrNotExist) {
		// Without it stop makes the file itself, which needs free space then.
		_ = c.prepare("")
	}
	return c, nil
}

func (c *control) close() error { return c.root.Close() }

// stop leaves the reason for the probe. The file appears whole or not at all, and the first reason stands.
func (c *control) stop(reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.root.Lstat(captureconfig.StopFile); err == nil {
		return nil
	}
	if err := c.prepare(reason); err != nil {
		return fmt.Errorf("write stop request: %w", err)
	}
	if err := c.root.Link(preparedFile, captureconfig.StopFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("publish stop request: %w", err)
	}
	return nil
}

// prepare writes the reason, and blanks after it, over what the prepared file holds.
func (c *control) prepare(reason string) error {
	f, err := c.root.OpenFile(preparedFile, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	b := append([]byte(reason), bytes.Repeat([]byte{' '}, max(0, preparedBytes-len(reason)))...)
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}
