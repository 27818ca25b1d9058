package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// Annotations with the image's name, which tools that import an OCI layout read.
const (
	annotationTag  = "org.opencontainers.image.ref.name"
	annotationName = "io.containerd.image.name"
)

// spec describes an image: one layer per architecture.
type spec struct {
	name       string
	archs      []string
	files      map[string]string // path in the image: file or directory
	labels     map[string]string
	entrypoint []string
	user       string
	created    time.Time
}

// readLabels adds the labels of a YAML file, which holds them in a map below one key. An empty file name adds nothing.
func readLabels(labels map[string]string, file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the labels: %w", err)
	}
	var groups map[string]map[string]string
	if err := yaml.UnmarshalStrict(content, &groups); err != nil {
		return fmt.Errorf("read the labels in %s, which must be a map below one key: %w", file, err)
	}
	for _, group := range groups {
		maps.Copy(labels, group)
	}
	return nil
}

// write writes the archive and returns a line per architecture with its digest and size.
func (s spec) write(out string) ([]string, error) {
	tag, err := name.NewTag(s.name)
	if err != nil {
		return nil, fmt.Errorf("name the image: %w", err)
	}
	var lines []string
	images := map[string]v1.Image{}
	for _, arch := range s.archs {
		img, err := s.build(arch)
		if err != nil {
			return nil, err
		}
		line, err := describe(img, arch)
		if err != nil {
			return nil, err
		}
		images[arch], lines = img, append(lines, line)
	}
	// Renaming never shows readers half an archive.
	fresh := out + ".new"
	if len(s.archs) == 1 {
		err = tarball.WriteToFile(fresh, tag, images[s.archs[0]])
	} else {
		err = s.writeLayout(fresh, tag, images)
	}
	if err == nil {
		err = os.Rename(fresh, out)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", out, err), os.RemoveAll(fresh))
	}
	return append(lines, out+": "+s.name), nil
}

// build builds the image of one architecture.
func (s spec) build(arch string) (v1.Image, error) {
	if machines[arch] == 0 {
		return nil, fmt.Errorf("architecture %q is not known: amd64 and arm64 are", arch)
	}
	content, err := s.layer(arch)
	if err != nil {
		return nil, err
	}
	kind := types.DockerLayer
	if len(s.archs) > 1 {
		kind = types.OCILayer
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(kind))
	if err != nil {
		return nil, fmt.Errorf("make an image layer: %w", err)
	}
	base := empty.Image
	if len(s.archs) > 1 {
		base = mutate.ConfigMediaType(mutate.MediaType(base, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("add an image layer: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: s.created}
	config.Config = v1.Config{Entrypoint: s.entrypoint, User: s.user, Labels: s.labels}
	if len(s.entrypoint) > 0 {
		config.Config.Env = []string{"PATH=/"}
	}
	return mutate.ConfigFile(img, config)
}

// writeLayout writes a tar of an OCI layout with one image index.
func (s spec) writeLayout(out string, tag name.Tag, images map[string]v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range s.archs {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{annotationTag: tag.TagStr(), annotationName: tag.Name()})); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	content := map[string][]byte{}
	if err := collect(content, "", dir); err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(writeTar(file, content), file.Close())
}

// writeTar writes files in the order of their names.
func writeTar(to io.Writer, content map[string][]byte) error {
	w := layerWriter{tar: tar.NewWriter(to), made: map[string]bool{".": true}}
	for _, p := range sortedNames(content) {
		w.file(p, content[p], 0o644)
	}
	return errors.Join(w.err, w.tar.Close())
}

func describe(img v1.Image, arch string) (string, error) {
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the image for %s: %w", arch, err)
	}
	layers, err := img.Layers()
	if err != nil {
		return "", fmt.Errorf("layers of the image for %s: %w", arch, err)
	}
	var packed int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return "", fmt.Errorf("size of the image for %s: %w", arch, err)
		}
		packed += size
	}
	return fmt.Sprintf("linux/%s: %s, %.2f MiB to pull", arch, digest, float64(packed)/(1<<20)), nil
}
