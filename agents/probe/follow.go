package probe

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// followers knows whether someone reads the packets while they are captured, and says up to which time all are in the file.
type followers struct {
	path    string // of the follow file
	results *os.Root
	log     *slog.Logger
	some    atomic.Bool

	file   *os.File // of the horizon
	failed bool
	b      [captureconfig.HorizonLen]byte
}

// look reads the follow file. What cannot be read follows nothing.
func (f *followers) look() {
	b, err := readSmall(f.path)
	f.some.Store(err == nil && len(b) > 0 && b[0] == captureconfig.Followed)
}

// complete writes the horizon. After an error readers wait longer for each packet, and nothing else is different.
func (f *followers) complete(at uint64) {
	if f.failed {
		return
	}
	err := f.open()
	if err == nil {
		_, err = f.file.WriteAt(captureconfig.AppendHorizon(f.b[:0], at), 0)
	}
	if err != nil {
		f.failed = true
		f.log.Warn("Telling readers how far the packets are failed", "error", err)
	}
}

func (f *followers) open() (err error) {
	if f.file != nil {
		return nil
	}
	if f.file, err = f.results.OpenFile(captureconfig.HorizonFile, os.O_WRONLY|os.O_CREATE, fileMode); err != nil {
		return err
	}
	return f.file.Chmod(fileMode) // despite the umask: the keeper must be able to read it
}

func (f *followers) close() {
	if f.file != nil {
		_ = f.file.Close() // what is lost of it is of no interest after the capture
	}
}

// newFollowers returns the followers of a probe. Its report has the results volume.
func newFollowers(controlDir string, r *reporter) *followers {
	return &followers{path: filepath.Join(controlDir, captureconfig.FollowFile), results: r.results, log: r.log}
}
