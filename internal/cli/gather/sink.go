package gather

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Sink receives the collected files.
type Sink interface {
	// Put writes one file. name is a path with slashes.
	Put(name string, content []byte) error
	Close() error
}

// NewSink creates a directory, or a tar archive if path ends in .tar, .tar.gz or .tgz. It overwrites nothing.
func NewSink(path string, now time.Time) (Sink, error) {
	archive := strings.HasSuffix(path, ".tar") || strings.HasSuffix(path, ".tar.gz") || strings.HasSuffix(path, ".tgz")
	if !archive {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, fmt.Errorf("create the directory: %w: name another one with -o", err)
		}
		return directory(path), nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the archive: %w: name another one with -o", err)
	}
	s := &tarball{now: now, closers: []io.Closer{f}}
	to := io.Writer(f)
	if !strings.HasSuffix(path, ".tar") {
		z := gzip.NewWriter(f)
		s.closers = append(s.closers, z)
		to = z
	}
	s.to = tar.NewWriter(to)
	s.closers = append(s.closers, s.to)
	return s, nil
}

type directory string

func (d directory) Put(name string, content []byte) error {
	path := filepath.Join(string(d), filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	return nil
}

func (directory) Close() error { return nil }

type tarball struct {
	to      *tar.Writer
	now     time.Time
	closers []io.Closer // the first is closed last
}

func (t *tarball) Put(name string, content []byte) error {
	h := &tar.Header{Name: "sonde-must-gather/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: t.now}
	if err := t.to.WriteHeader(h); err != nil {
		return fmt.Errorf("write to the archive: %w", err)
	}
	if _, err := t.to.Write(content); err != nil {
		return fmt.Errorf("write to the archive: %w", err)
	}
	return nil
}

func (t *tarball) Close() error {
	var errs []error
	for _, c := range slices.Backward(t.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
