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
	// spareFile becomes the stop file. It is written when the volume is opened, so that its memory is allocated: a
	// capture must end when its requester's right does, even if the volume is full.
	spareFile = "." + captureconfig.StopFile
	// spareBytes is longer than any reason.
	spareBytes = 64
)

// control is the volume with the stop file and the follow file, which the probe watches.
type control struct {
	root *os.Root
	mu   sync.Mutex // one stop at a time

	following sync.Mutex
	followers int
}

func openControl(path string) (*control, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open control volume %s: %w", path, err)
	}
	c := &control{root: root}
	// After a restart the stop file may exist: it is a link to the spare file, which must stay as it is.
	if _, err := root.Lstat(captureconfig.StopFile); errors.Is(err, fs.ErrNotExist) {
		// If this fails, stop writes the file, which needs free space then.
		_ = c.writeSpare("")
	}
	// Before a restart someone may have followed the capture. Nobody does now.
	if _, err := root.Lstat(captureconfig.FollowFile); err == nil {
		_ = c.writeFollowed(false)
	}
	return c, nil
}

// follow lets the probe know that one more reader follows its packets, until leave is called. Without the follow file packets come later,
// and nothing else changes.
func (c *control) follow() (leave func(), err error) {
	c.following.Lock()
	defer c.following.Unlock()
	if c.followers++; c.followers == 1 {
		err = c.writeFollowed(true)
	}
	return func() {
		c.following.Lock()
		defer c.following.Unlock()
		if c.followers--; c.followers == 0 {
			_ = c.writeFollowed(false) // the probe then writes packets sooner than it must
		}
	}, err
}

// writeFollowed overwrites the follow file: the keeper may remove no file.
func (c *control) writeFollowed(followed bool) error {
	f, err := c.root.OpenFile(captureconfig.FollowFile, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write follow file: %w", err)
	}
	content := byte('0')
	if followed {
		content = captureconfig.Followed
	}
	if _, err = f.WriteAt([]byte{content}, 0); err != nil {
		err = fmt.Errorf("write follow file: %w", err)
	}
	return errors.Join(err, f.Close())
}

func (c *control) close() error { return c.root.Close() }

// stop writes the stop file with a reason. The file appears complete or not at all. The first reason wins.
func (c *control) stop(reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.root.Lstat(captureconfig.StopFile); err == nil {
		return nil
	}
	if err := c.writeSpare(reason); err != nil {
		return fmt.Errorf("write stop request: %w", err)
	}
	if err := c.root.Link(spareFile, captureconfig.StopFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("publish stop request: %w", err)
	}
	return nil
}

// writeSpare overwrites the spare file with the reason, padded with blanks.
func (c *control) writeSpare(reason string) error {
	f, err := c.root.OpenFile(spareFile, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	b := append([]byte(reason), bytes.Repeat([]byte{' '}, max(0, spareBytes-len(reason)))...)
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}
