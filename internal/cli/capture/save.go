package capture

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
)

// parallelDownloads at a time: enough to hide latency, few enough for the API server they go through.
const parallelDownloads = 4

// Saver fetches the files of a capture and puts them where the user wants them.
type Saver struct {
	// Download writes one Pod's file to dst and returns its size (results.Client.Download).
	Download func(ctx context.Context, podUID, file string, dst *os.File, progress func(done, total int64)) (int64, error)
	// Fetching is told how far a Pod's transfer is; Merging that all are done. Both are called from
	// several goroutines, one at a time.
	Fetching func(podUID string, done, total int64)
	Merging  func()
	// SumUp traces also where their files are kept apart.
	SumUp bool

	mu sync.Mutex
}

// SavedFile is one file of one Pod.
type SavedFile struct {
	Pod  v1alpha1.PodResult
	Name string
	// Bytes that were saved; Path where, if the files were kept apart.
	Bytes int64
	Path  string
	// Err says why the file is missing or not what the status promises.
	Err error

	part string // where it lies until all are there
}

// Saved is what Save has done.
type Saved struct {
	// Path of the merged file or of the directory, and its size in bytes. Empty: nothing was saved.
	Path  string
	Bytes int64
	Files []SavedFile
	// Late counts what the merged file holds behind what is later: see pcapng.MergeResult.
	Late uint64
	// Trace is what the events of a trace come to, if they were read.
	Trace *traceview.Summary
}

// Problems returns the files that are missing or not what they should be.
func (s Saved) Problems() []SavedFile {
	var bad []SavedFile
	for _, f := range s.Files {
		if f.Err != nil {
			bad = append(bad, f)
		}
	}
	return bad
}

// Save fetches the files of pods into out. A file that cannot be had is noted in the result and does
// not keep the others from being saved; an error means that nothing was saved.
func (s *Saver) Save(ctx context.Context, pods []v1alpha1.PodResult, out Output) (Saved, error) {
	saved := Saved{Files: plan(pods)}
	if len(saved.Files) == 0 {
		return saved, nil
	}
	dir, err := out.workDir()
	if err != nil {
		return saved, err
	}
	defer os.RemoveAll(dir)
	if err := s.fetch(ctx, dir, saved.Files); err != nil {
		return saved, err
	}
	if !out.apart() {
		err = s.merge(ctx, &saved, dir, out)
		return saved, err
	}
	if parts := saved.parts(); s.SumUp && out.Form == NDJSON && len(parts) > 0 {
		// What cannot be read is saved all the same.
		_, _ = saved.mergeTo(ctx, io.Discard, out.Form, parts)
		saved.Late = 0
		if ctx.Err() != nil {
			return saved, context.Cause(ctx)
		}
	}
	err = saved.separate(out)
	return saved, err
}

// plan lists the files and gives each a name of its own: Pods of one name follow each other where a
// StatefulSet restarts one.
func plan(pods []v1alpha1.PodResult) []SavedFile {
	var files []SavedFile
	taken := map[string]bool{}
	for _, p := range pods {
		for _, f := range p.Files {
			saved := SavedFile{Pod: p, Name: f.Name, part: f.Name}
			if taken[saved.part] {
				ext := filepath.Ext(f.Name)
				saved.part = strings.TrimSuffix(f.Name, ext) + "-" + p.UID + ext
			}
			// Names come from the cluster and must not lead out of the directory.
			if saved.part != filepath.Base(saved.part) || strings.HasPrefix(saved.part, ".") {
				saved.Err = fmt.Errorf("%q is no name for a file", saved.part)
			}
			taken[saved.part] = true
			files = append(files, saved)
		}
	}
	return files
}

// fetch downloads all files into dir. It fails only when ctx ends.
func (s *Saver) fetch(ctx context.Context, dir string, files []SavedFile) error {
	var g errgroup.Group
	g.SetLimit(parallelDownloads)
	for i := range files {
		f := &files[i]
		if f.Err != nil {
			continue
		}
		g.Go(func() error {
			f.part = filepath.Join(dir, f.part)
			f.Bytes, f.Err = s.one(ctx, f)
			return nil
		})
	}
	_ = g.Wait() // each file has its own error
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (s *Saver) one(ctx context.Context, f *SavedFile) (int64, error) {
	dst, err := os.OpenFile(f.part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("save %s: %w", f.Name, err)
	}
	n, err := s.Download(ctx, f.Pod.UID, f.Name, dst, func(done, total int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Fetching(f.Pod.UID, done, total)
	})
	if closed := dst.Close(); err == nil && closed != nil {
		err = fmt.Errorf("save %s: %w", f.Name, closed)
	}
	if err != nil {
		_ = os.Remove(f.part)
		return 0, err
	}
	return n, checkSize(f, n)
}

// checkSize compares with what the Pod's account says. A probe that was killed had no time for its
// last account, so there more than it says is right.
func checkSize(f *SavedFile, n int64) error {
	want := int64(0)
	for _, r := range f.Pod.Files {
		if r.Name == f.Name {
			want = r.Bytes
		}
	}
	if n == want || (n > want && f.Pod.Phase != v1alpha1.PhaseCompleted) {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, and %d were captured: fetch it again", f.Name, n, want)
}

// parts are the files that came, those of a wrong size too: their packets are packets.
func (s *Saved) parts() []*SavedFile {
	var parts []*SavedFile
	for i := range s.Files {
		if s.Files[i].Bytes > 0 {
			parts = append(parts, &s.Files[i])
		}
	}
	return parts
}

// separate moves every file into the output's directory.
func (s *Saved) separate(out Output) error {
	parts := s.parts()
	if len(parts) == 0 {
		return nil
	}
	if err := os.MkdirAll(out.Path, 0o777); err != nil {
		return fmt.Errorf("save the capture: %w", err)
	}
	for _, f := range parts {
		path := filepath.Join(out.Path, filepath.Base(f.part))
		if err := out.place(f.part, path); err != nil {
			f.Err = err
			continue
		}
		f.Path = path
		s.Bytes += f.Bytes
		s.Path = out.Path
	}
	return nil
}
