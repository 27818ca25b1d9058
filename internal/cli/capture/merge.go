package capture

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Memory for sorting packets, in bytes: for all files together, and the least for each file.
const (
	mergeMemory        = 512 << 20
	mergeMemoryPerFile = 4 << 20
)

// merge merges the downloaded files into the output. If that fails, it keeps them in a directory beside the output,
// because capturing again would take minutes or be impossible.
func (s *Saver) merge(ctx context.Context, saved *Saved, dir string, out Output) error {
	s.mu.Lock()
	s.OnMerge()
	s.mu.Unlock()
	received := saved.received()
	if len(received) == 0 {
		return nil
	}
	if s.Names != nil && out.Form == PCAPNG {
		saved.names = s.Names(ctx)
	}
	if out.Streams() {
		n, err := saved.mergeTo(ctx, out.Stdout, out.Form, received)
		if err != nil {
			return err
		}
		saved.Path, saved.Bytes = out.Path, n
		return nil
	}
	// No file has this name: plan refuses names that begin with a dot.
	merged := filepath.Join(dir, ".merged")
	n, err := saved.mergeToFile(ctx, merged, out.Form, received)
	if err == nil {
		err = out.place(merged, out.Path)
	}
	if err != nil && ctx.Err() != nil { // the user interrupted, and can download the files again
		return err
	}
	if err != nil {
		return saved.keepUnmerged(dir, out, err)
	}
	saved.Path, saved.Bytes = out.Path, n
	return nil
}

// keepUnmerged moves the directory with the files to a name that is not deleted, and adds that name to the error.
func (s *Saved) keepUnmerged(dir string, out Output, failed error) error {
	_ = os.Remove(filepath.Join(dir, ".merged"))
	kept := out.Path + ".parts"
	if err := os.Rename(dir, kept); err != nil {
		return failed
	}
	return fmt.Errorf("%w; the files of the single Pods are in %s", failed, kept)
}

func (s *Saved) mergeToFile(ctx context.Context, path string, form Form, received []*SavedFile) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("save the capture: %w", err)
	}
	n, err = s.mergeTo(ctx, f, form, received)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return 0, fmt.Errorf("save the capture: %w", err)
	}
	return n, nil
}

// mergeTo merges the files in the order of time into w, and returns the number of bytes written.
func (s *Saved) mergeTo(ctx context.Context, w io.Writer, form Form, received []*SavedFile) (int64, error) {
	pods := byPod(received)
	files := make([][]io.Reader, len(pods))
	for i := range pods {
		for _, p := range pods[i] {
			f, err := os.Open(p.tempPath)
			if err != nil {
				return 0, fmt.Errorf("merge: %w", err)
			}
			defer f.Close()
			files[i] = append(files[i], f)
		}
	}
	merge := s.mergePackets
	if form == NDJSON {
		merge = s.mergeEvents
	}
	counted := &counter{w: w}
	if err := merge(ctx, counted, pods, files); err != nil {
		return 0, fmt.Errorf("merge: %w", err)
	}
	return counted.n, nil
}

// mergePackets writes the packets of the Pods' files.
func (s *Saved) mergePackets(_ context.Context, w io.Writer, pods [][]*SavedFile, files [][]io.Reader) error {
	sources := make([]io.Reader, len(files))
	for i, ring := range files {
		sources[i] = pcapng.Sequence(ring...)
	}
	result, err := pcapng.Merge(w, sources, pcapng.MergeOptions{
		MaxBuffered: max(mergeMemoryPerFile, mergeMemory/len(sources)), Names: s.names,
	})
	if err != nil {
		return err
	}
	s.Late = result.Late
	for _, i := range result.Truncated {
		// The file of a Pod that is not Completed is expected to be incomplete, and its phase is reported.
		if p := pods[i][len(pods[i])-1]; p.Err == nil && p.Pod.Phase == v1alpha1.PhaseCompleted {
			p.Err = fmt.Errorf("%s ends in the middle of a packet: download it again", p.Name)
		}
	}
	return nil
}

// byPod groups files by Pod and keeps their order. Several files of one Pod are a ring, oldest first.
func byPod(received []*SavedFile) [][]*SavedFile {
	var pods [][]*SavedFile
	index := map[string]int{}
	for _, p := range received {
		at, ok := index[p.Pod.UID]
		if !ok {
			at = len(pods)
			index[p.Pod.UID] = at
			pods = append(pods, nil)
		}
		pods[at] = append(pods[at], p)
	}
	return pods
}

// counter counts the bytes written.
type counter struct {
	w io.Writer
	n int64
}

// Write writes b to the underlying writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
