package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// machines are the supported architectures by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// layer returns the files of one architecture as a tar. root and its group own the files, and all users can read them,
// so that the image runs under any user.
func (s spec) layer(arch string) ([]byte, error) {
	content := map[string][]byte{}
	for _, to := range slices.Sorted(maps.Keys(s.files)) {
		if err := collect(content, to, strings.ReplaceAll(s.files[to], "{arch}", arch)); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	w := layerWriter{tar: tar.NewWriter(&b), made: map[string]bool{".": true}}
	for _, p := range slices.Sorted(maps.Keys(content)) {
		mode := int64(0o644)
		if bytes.HasPrefix(content[p], []byte(elf.ELFMAG)) {
			if err := checkProgram(content[p], arch); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			mode = 0o755
		}
		w.file(p, content[p], mode)
	}
	if w.err == nil {
		w.err = w.tar.Close()
	}
	return b.Bytes(), w.err
}

// collect reads a file, or all files of a directory.
func collect(content map[string][]byte, to, from string) error {
	found := false
	err := filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a directory", p)
		}
		below, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		found = true
		content[path.Join(to, filepath.ToSlash(below))], err = os.ReadFile(p)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%s is empty", from)
	}
	if err != nil {
		return fmt.Errorf("read the files for /%s in the image: %w", to, err)
	}
	return nil
}

// checkProgram returns why a program cannot run in an image that contains nothing else.
func checkProgram(content []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if f.Machine != machines[arch] {
		return fmt.Errorf("the program is for %s, not for %s: build it with GOARCH=%s", f.Machine, arch, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program is not static: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// layerWriter writes a tar and keeps the first error.
type layerWriter struct {
	tar  *tar.Writer
	made map[string]bool
	err  error
}

func (w *layerWriter) header(h *tar.Header) {
	h.ModTime = time.Unix(0, 0)
	if w.err == nil {
		w.err = w.tar.WriteHeader(h)
	}
}

// dir writes a directory and its parents, each once.
func (w *layerWriter) dir(d string) {
	if w.made[d] {
		return
	}
	w.made[d] = true
	w.dir(path.Dir(d))
	w.header(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755})
}

func (w *layerWriter) file(p string, content []byte, mode int64) {
	w.dir(path.Dir(p))
	w.header(&tar.Header{Typeflag: tar.TypeReg, Name: p, Size: int64(len(content)), Mode: mode})
	if w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}
