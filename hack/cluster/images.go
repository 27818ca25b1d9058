package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The images of every cluster.
const (
	pauseImage   = "sonde.local/pause:1"
	coreDNSImage = "sonde.local/coredns:1"
	busyboxImage = "sonde.local/busybox:1"
)

// imageSpec describes an image of one layer.
type imageSpec struct {
	// files maps a path in the image to a file of the machine.
	files map[string]string
	// texts maps a path in the image to content.
	texts map[string]string
	// links maps a path in the image to the target of a symbolic link.
	links map[string]string
	// dirs are empty directories.
	dirs []string

	entrypoint, cmd []string
	user            string
}

// baseImages returns the images of every cluster by name.
func baseImages(ctx context.Context, bin, busybox string) (map[string]imageSpec, error) {
	box, err := busyboxSpec(ctx, busybox)
	if err != nil {
		return nil, err
	}
	return map[string]imageSpec{
		pauseImage: {
			files:      map[string]string{"pause": filepath.Join(bin, "pause")},
			entrypoint: []string{"/pause"}, user: "65535:65535",
		},
		coreDNSImage: {
			files:      map[string]string{"coredns": filepath.Join(bin, "coredns")},
			entrypoint: []string{"/coredns"},
		},
		busyboxImage: box,
	}, nil
}

// busyboxSpec is an image with Debian's static busybox under the names of all its applets.
func busyboxSpec(ctx context.Context, busybox string) (imageSpec, error) {
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return imageSpec{}, fmt.Errorf("list the applets of %s: %w", busybox, err)
	}
	spec := imageSpec{
		files: map[string]string{"bin/busybox": busybox},
		texts: map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
			"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		},
		links: map[string]string{},
		dirs:  []string{"tmp", "root", "var/tmp"},
		cmd:   []string{"sh"},
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if applet != "busybox" {
			spec.links["bin/"+applet] = "busybox"
		}
	}
	return spec, nil
}

// checkStatic returns an error if a program needs shared libraries, which an image with only this program lacks.
func checkStatic(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read %s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static", program)
		}
	}
	return nil
}

// build builds the image. The same spec and files give the same bytes.
func (s imageSpec) build() (v1.Image, error) {
	content, err := s.layer()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("make an image layer: %w", err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("add an image layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: s.entrypoint, Cmd: s.cmd, User: s.user,
	}
	return mutate.ConfigFile(img, config)
}

// layer returns the image's files as a tar.
func (s imageSpec) layer() ([]byte, error) {
	var b bytes.Buffer
	w := layerWriter{tar: tar.NewWriter(&b), made: map[string]bool{".": true}}
	for _, d := range s.dirs {
		w.dir(d)
	}
	for _, p := range slices.Sorted(maps.Keys(s.files)) {
		content, err := os.ReadFile(s.files[p])
		if err != nil {
			return nil, fmt.Errorf("read %s of an image: %w", p, err)
		}
		w.file(p, content, 0o755)
	}
	for _, p := range slices.Sorted(maps.Keys(s.texts)) {
		w.file(p, []byte(s.texts[p]), 0o644)
	}
	for _, p := range slices.Sorted(maps.Keys(s.links)) {
		w.dir(path.Dir(p))
		w.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: p, Linkname: s.links[p], Mode: 0o777})
	}
	if w.err == nil {
		w.err = w.tar.Close()
	}
	return b.Bytes(), w.err
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
	mode := int64(0o755)
	if path.Base(d) == "tmp" {
		mode = 0o1777
	}
	w.header(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: mode})
}

func (w *layerWriter) file(p string, content []byte, mode int64) {
	w.dir(path.Dir(p))
	w.header(&tar.Header{Typeflag: tar.TypeReg, Name: p, Size: int64(len(content)), Mode: mode})
	if w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}
