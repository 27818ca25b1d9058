package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// parallelDownloads hides latency without loading the API server, through which all downloads go.
const parallelDownloads = 4

// Saver downloads the files of a capture and saves them to an Output.
type Saver struct {
	// Download writes a file of a Pod, of at most most bytes, to dst and returns its size (results.Client.Download).
	Download func(ctx context.Context, podUID, file string, most int64, dst *os.File, progress func(done, total int64)) (int64, error)
	// MaxBytes is the most that the files of one Pod have together, and MaxTotal the files of all, in bytes. The status of a Pod
	// that is Completed has the sizes of its files.
	MaxBytes, MaxTotal int64
	// OnProgress is called with the progress of a download in bytes, and OnMerge when all downloads are done. They are
	// called from several goroutines, but one call at a time.
	OnProgress func(podUID string, done, total int64)
	OnMerge    func()
	// Summarize traces even if their files are not merged.
	Summarize bool
	// Names returns the names of addresses for a merged file of packets. It may be nil, and so may its result.
	Names func(ctx context.Context) *pcapng.Names

	mu    sync.Mutex
	saved int64 // bytes, of all files
}

// slack is how much larger than MaxBytes a file may be.
const slack = 1 << 20

// Bounds returns MaxBytes and MaxTotal of a capture. They are from its spec and its status, which the API server vouches for.
func Bounds(c v1alpha1.Capture) (maxBytes, maxTotal int64) {
	status, maxBytes := c.CaptureStatus(), c.Common().MaxBytes
	return maxBytes, (maxBytes + slack) * int64(len(status.Pods)+int(status.PodsOmitted))
}

// SavedFile is one file of one Pod.
type SavedFile struct {
	Pod  v1alpha1.PodResult
	Name string
	// Captured is the size of the file in the Pod's account, in bytes.
	Captured int64
	// Bytes saved. Path is set if the files were not merged.
	Bytes int64
	Path  string
	// Err says why the file is missing or differs from the status.
	Err error

	tempPath string // until all files are downloaded
}

// Saved is the result of Save.
type Saved struct {
	// Path of the merged file or of the directory, and its size in bytes. An empty Path means that nothing was saved.
	Path  string
	Bytes int64
	Files []SavedFile
	// Late counts packets or events that come after later ones in the merged file: see pcapng.MergeResult.
	Late uint64
	// Trace sums up the events of a trace, if they were read.
	Trace *traceview.Summary

	names *pcapng.Names // for the merged file
}

// Problems returns the files that are missing or differ from the status.
func (s Saved) Problems() []SavedFile {
	var bad []SavedFile
	for _, f := range s.Files {
		if f.Err != nil {
			bad = append(bad, f)
		}
	}
	return bad
}

// Save downloads the files of pods into out. A file that cannot be downloaded has an error in the result, and the
// others are saved. An error of Save itself means that nothing was saved.
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
	if !out.unmerged() {
		err = s.merge(ctx, &saved, dir, out)
		return saved, err
	}
	if received := saved.received(); s.Summarize && out.Form == NDJSON && len(received) > 0 {
		// A file that cannot be read is saved too.
		_, _ = saved.mergeTo(ctx, io.Discard, out.Form, received)
		saved.Late = 0
		if ctx.Err() != nil {
			return saved, context.Cause(ctx)
		}
	}
	err = saved.separate(out)
	return saved, err
}

// Streamed is the result of a capture whose packets were written while it ran, and whose files are not saved. read counts the packets of
// each Pod, by its UID. bytes were written. A stream of a ring has the packets that newer ones have overwritten, too, unless its reader was
// too slow for them.
func Streamed(pods []v1alpha1.PodResult, read map[string]int64, bytes int64) Saved {
	s := Saved{Path: streamPath, Bytes: bytes, Files: plan(pods)}
	last := ""
	for i := range s.Files {
		f := &s.Files[i]
		if errors.Is(f.Err, errGone) {
			f.Err = nil // the stream may have had its packets before
		}
		f.Bytes = f.Captured
		first := f.Pod.UID != last // the packets are missing from the Pod's stream, and not from each file of a ring
		last = f.Pod.UID
		all := f.Pod.Packets + f.Pod.Overwritten
		if missing := all - read[f.Pod.UID]; missing > 0 && f.Err == nil && first {
			f.Err = fmt.Errorf("%d of its %d packets are not in the stream", missing, all)
		}
	}
	return s
}

// errGone says that a Pod has a result, and the cluster has no file of it.
var errGone = errors.New("the file is not in the cluster any more: the agent's Pod ended before, as by a drain of its node")

// plan lists the files and gives each a unique name. A StatefulSet that restarts a Pod has two Pods of one name. A Pod that is Completed
// had a file: if it has none any more, an entry says so.
func plan(pods []v1alpha1.PodResult) []SavedFile {
	var files []SavedFile
	used := map[string]bool{}
	for _, p := range pods {
		if p.Phase == v1alpha1.PhaseCompleted && len(p.Files) == 0 {
			files = append(files, SavedFile{Pod: p, Name: "the file", Err: errGone})
		}
		for _, f := range p.Files {
			saved := SavedFile{Pod: p, Name: f.Name, Captured: f.Bytes, tempPath: f.Name}
			if used[saved.tempPath] {
				ext := filepath.Ext(f.Name)
				saved.tempPath = strings.TrimSuffix(f.Name, ext) + "-" + p.UID + ext
			}
			// A name from the cluster must not be a path out of the directory.
			if saved.tempPath != filepath.Base(saved.tempPath) || strings.HasPrefix(saved.tempPath, ".") {
				saved.Err = fmt.Errorf("%q is not a valid file name", saved.tempPath)
			}
			used[saved.tempPath] = true
			files = append(files, saved)
		}
	}
	return files
}

// fetch downloads all files into dir. It returns an error only if ctx ends.
func (s *Saver) fetch(ctx context.Context, dir string, files []SavedFile) error {
	var g errgroup.Group
	g.SetLimit(parallelDownloads)
	for i := range files {
		f := &files[i]
		if f.Err != nil {
			continue
		}
		g.Go(func() error {
			f.tempPath = filepath.Join(dir, f.tempPath)
			f.Bytes, f.Err = s.download(ctx, f)
			return nil
		})
	}
	_ = g.Wait() // each file has its own error
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (s *Saver) download(ctx context.Context, f *SavedFile) (int64, error) {
	dst, err := os.OpenFile(f.tempPath, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("save %s: %w", f.Name, err)
	}
	n, err := s.Download(ctx, f.Pod.UID, f.Name, s.most(f), dst, func(done, total int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.OnProgress(f.Pod.UID, done, total)
	})
	if closed := dst.Close(); err == nil && closed != nil {
		err = fmt.Errorf("save %s: %w", f.Name, closed)
	}
	if err != nil {
		_ = os.Remove(f.tempPath)
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved += n
	return n, checkSize(f, n)
}

// most returns how large a file can be. The endpoint names Pods that do not fit into the status, so it could name any number:
// MaxTotal bounds all files but those that are downloaded at the moment.
func (s *Saver) most(f *SavedFile) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.MaxBytes + slack
	if f.Pod.Phase == v1alpha1.PhaseCompleted {
		most = min(most, f.Captured)
	}
	return min(most, max(s.MaxTotal-s.saved, 0))
}

// checkSize compares the size with the Pod's account. A probe that was killed may have written more than its last
// account says.
func checkSize(f *SavedFile, n int64) error {
	if n == f.Captured || (n > f.Captured && f.Pod.Phase != v1alpha1.PhaseCompleted) {
		return nil
	}
	return fmt.Errorf("%s has %d bytes, but %d were captured: download it again", f.Name, n, f.Captured)
}

// received returns the downloaded files, including files of a wrong size: they may hold some packets.
func (s *Saved) received() []*SavedFile {
	var received []*SavedFile
	for i := range s.Files {
		if s.Files[i].Bytes > 0 {
			received = append(received, &s.Files[i])
		}
	}
	return received
}

// separate moves each file into the directory of the output.
func (s *Saved) separate(out Output) error {
	received := s.received()
	if len(received) == 0 {
		return nil
	}
	if err := os.MkdirAll(out.Path, 0o777); err != nil {
		return fmt.Errorf("save the capture: %w", err)
	}
	for _, f := range received {
		path := filepath.Join(out.Path, filepath.Base(f.tempPath))
		err := syncFile(f.tempPath) // the cluster's copy is deleted after this
		if err == nil {
			err = out.place(f.tempPath, path)
		}
		if err != nil {
			f.Err = err
			continue
		}
		f.Path = path
		s.Bytes += f.Bytes
		s.Path = out.Path
	}
	return nil
}

// syncFile writes a file to the disk. A merged file is synced when it is written.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("save the capture: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("save the capture: %w", err)
	}
	return nil
}
