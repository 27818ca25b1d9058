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

// Memory for putting packets in order, for all files together and at least for each.
const (
	mergeMemory        = 512 << 20
	mergeMemoryPerFile = 4 << 20
)

// merge writes the files that came, as one, to where the output is. Where they cannot be merged, they
// stay beside it: what took minutes to capture is not thrown away.
func (s *Saver) merge(ctx context.Context, saved *Saved, dir string, out Output) error {
	s.mu.Lock()
	s.Merging()
	s.mu.Unlock()
	parts := saved.parts()
	if len(parts) == 0 {
		return nil
	}
	if out.Streams() {
		n, err := saved.mergeTo(ctx, out.Stdout, out.Form, parts)
		if err != nil {
			return err
		}
		saved.Path, saved.Bytes = out.Path, n
		return nil
	}
	// No part has this name: plan refuses those that begin with a dot.
	whole := filepath.Join(dir, ".whole")
	n, err := saved.mergeToFile(ctx, whole, out.Form, parts)
	if err == nil {
		err = out.place(whole, out.Path)
	}
	if err != nil && ctx.Err() != nil { // the user wants to leave, and can fetch them again
		return err
	}
	if err != nil {
		return saved.keepParts(dir, out, err)
	}
	saved.Path, saved.Bytes = out.Path, n
	return nil
}

// keepParts moves the directory of unmerged files to a name that does not vanish, and says so.
func (s *Saved) keepParts(dir string, out Output, failed error) error {
	_ = os.Remove(filepath.Join(dir, ".whole"))
	kept := out.Path + ".parts"
	if err := os.Rename(dir, kept); err != nil {
		return failed
	}
	return fmt.Errorf("%w; the Pods' own files are in %s", failed, kept)
}

func (s *Saved) mergeToFile(ctx context.Context, path string, form Form, parts []*SavedFile) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("save the capture: %w", err)
	}
	n, err = s.mergeTo(ctx, f, form, parts)
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

// mergeTo writes what is in parts to w in the order of its time and returns how many bytes that are.
func (s *Saved) mergeTo(ctx context.Context, w io.Writer, form Form, parts []*SavedFile) (int64, error) {
	pods := byPod(parts)
	files := make([][]io.Reader, len(pods))
	for i := range pods {
		for _, p := range pods[i] {
			f, err := os.Open(p.part)
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
	result, err := pcapng.Merge(w, sources, pcapng.MergeOptions{MaxBuffered: max(mergeMemoryPerFile, mergeMemory/len(sources))})
	if err != nil {
		return err
	}
	s.Late = result.Late
	for _, i := range result.Truncated {
		// Of a Pod that is not Completed it is known, and said, that its file is not whole.
		if p := pods[i][len(pods[i])-1]; p.Err == nil && p.Pod.Phase == v1alpha1.PhaseCompleted {
			p.Err = fmt.Errorf("%s ends within a packet: fetch it again", p.Name)
		}
	}
	return nil
}

// byPod puts the files of each Pod together, in their order: several are those of a ring, oldest first.
func byPod(parts []*SavedFile) [][]*SavedFile {
	var pods [][]*SavedFile
	place := map[string]int{}
	for _, p := range parts {
		at, ok := place[p.Pod.UID]
		if !ok {
			at = len(pods)
			place[p.Pod.UID] = at
			pods = append(pods, nil)
		}
		pods[at] = append(pods[at], p)
	}
	return pods
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

// Write writes through.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
