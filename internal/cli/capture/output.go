package capture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Output is the destination of a capture's files.
type Output struct {
	// Path of the file, or of the directory if files are not merged; "-" is Stdout.
	Path string
	// Form of the files.
	Form Form
	// Separate saves one file for each Pod instead of merging them.
	Separate bool
	// Force overwrites existing files.
	Force  bool
	Stdout io.Writer
}

// DefaultPath returns the path for a target if the user gives none: TARGET-TIME with an extension, or without one for a
// directory.
func (o Output) DefaultPath(target string, now time.Time) string {
	path := target + "-" + now.UTC().Format("20060102T150405Z")
	if o.unmerged() {
		return path
	}
	return path + o.Form.extension()
}

// unmerged reports whether the files are saved one by one.
func (o Output) unmerged() bool { return o.Separate || o.Form == Flap }

// streamPath is the Path of Stdout.
const streamPath = "-"

// Streams reports whether the capture is written to Stdout.
func (o Output) Streams() bool { return o.Path == streamPath }

// Check finds, before anything is captured, the errors that Save would return. They say what to write instead.
func (o Output) Check() error {
	if o.Streams() {
		if o.Form == Flap {
			return errors.New("-o -: a trace of format flap has several files, which cannot be written to standard output: name a directory")
		}
		if o.Separate {
			return errors.New("-o -: several files cannot be written to standard output: name a directory, or omit --keep-separate")
		}
		return nil
	}
	if err := o.checkPath(); err != nil {
		return err
	}
	dir, err := o.workDir()
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

func (o Output) checkPath() error {
	info, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("check the output: %w", err)
	case info.IsDir() && !o.unmerged():
		return fmt.Errorf("%s is a directory: name a file, or add --keep-separate for one file per Pod in it", o.Path)
	case !info.IsDir() && o.Form == Flap:
		return fmt.Errorf("%s is a file: a trace of format flap needs a directory", o.Path)
	case !info.IsDir() && o.Separate:
		return fmt.Errorf("%s is a file: --keep-separate needs a directory", o.Path)
	case !info.IsDir() && !o.Force:
		return fmt.Errorf("%s exists: choose another name, or overwrite it with --force", o.Path)
	}
	return nil
}

// workDir creates a directory beside the output, so that a complete file can be renamed to its path.
func (o Output) workDir() (string, error) {
	path := filepath.Clean(o.Path) // Dir of "out/" would be out itself
	parent, base := filepath.Dir(path), filepath.Base(path)
	if o.Streams() {
		parent, base = "", "sonde"
	}
	dir, err := os.MkdirTemp(parent, "."+base+".*.part")
	if err != nil {
		return "", fmt.Errorf("prepare to save the capture: %w", err)
	}
	return dir, nil
}

// place moves a complete file to path. Without Force it does not overwrite a file that was created since Check.
func (o Output) place(file, path string) error {
	var err error
	if o.Force {
		err = os.Rename(file, path)
	} else {
		err = os.Link(file, path) // it fails where a rename would overwrite
		if err != nil && !errors.Is(err, fs.ErrExist) {
			err = renameToNew(file, path)
		}
	}
	switch {
	case err == nil:
		syncDir(filepath.Dir(path))
		return nil
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists: choose another name, or overwrite it with --force", path)
	}
	return fmt.Errorf("save the capture: %w", err)
}

// renameToNew renames a file unless path exists, on a file system without hard links. An empty file takes the name first.
func renameToNew(file, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // place wraps it
	}
	err = errors.Join(f.Close(), os.Rename(file, path))
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

// syncDir writes the names of a directory to the disk, because the cluster's copies of its files are deleted next. Windows and some network
// file systems cannot, and need not.
func syncDir(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
