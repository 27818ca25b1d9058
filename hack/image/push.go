package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// push pushes an archive to a registry and returns the name with the digest: the index's if there is one. It uses plain HTTP for a registry on loopback.
func push(ctx context.Context, archive, ref string) (string, error) {
	tag, err := name.NewTag(ref)
	if err != nil {
		return "", fmt.Errorf("name the image in the registry: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	digest, err := pushArchive(archive, tag, options)
	if err != nil {
		return "", fmt.Errorf("push %s to %s (credentials come from docker's configuration: see docker login): %w", archive, tag, err)
	}
	return tag.Context().Name() + "@" + digest.String(), nil
}

func pushArchive(archive string, tag name.Tag, options []remote.Option) (v1.Hash, error) {
	var digest v1.Hash
	err := open(archive,
		func(img v1.Image) (err error) {
			digest, err = img.Digest()
			return errors.Join(err, remote.Write(tag, img, options...))
		},
		func(index v1.ImageIndex) (err error) {
			digest, err = index.Digest()
			return errors.Join(err, remote.WriteIndex(tag, index, options...))
		})
	return digest, err
}

// digest returns the digest of an archive's image, or of its index if it has one.
func digest(archive string) (digest v1.Hash, err error) {
	err = open(archive,
		func(img v1.Image) (err error) {
			digest, err = img.Digest()
			return err
		},
		func(index v1.ImageIndex) (err error) {
			digest, err = index.Digest()
			return err
		})
	if err != nil {
		return digest, fmt.Errorf("read %s: %w", archive, err)
	}
	return digest, nil
}

// open calls the function for what the archive holds: an index or an image.
func open(archive string, image func(v1.Image) error, index func(v1.ImageIndex) error) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	isLayout, err := unpackLayout(archive, dir)
	if err != nil {
		return err
	}
	if isLayout {
		only, err := onlyIndex(dir)
		if err != nil {
			return err
		}
		return index(only)
	}
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return err
	}
	return image(img)
}

// onlyIndex returns the image index that build writes into a layout.
func onlyIndex(dir string) (v1.ImageIndex, error) {
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 || !manifest.Manifests[0].MediaType.IsIndex() {
		return nil, errors.New("the layout does not hold one image index: write it with image build")
	}
	return root.ImageIndex(manifest.Manifests[0].Digest)
}

// unpackLayout unpacks an archive into dir if it is an OCI layout.
func unpackLayout(archive, dir string) (isLayout bool, err error) {
	file, err := os.Open(archive)
	if err != nil {
		return false, err
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return isLayout, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the archive: %w", err)
		}
		if h.Name == "manifest.json" { // a docker archive
			return false, nil
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		isLayout = isLayout || h.Name == "oci-layout"
		if err := unpackFile(filepath.Join(dir, h.Name), r); err != nil {
			return false, err
		}
	}
}

func unpackFile(to string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	return errors.Join(err, file.Close())
}

func sortedNames(content map[string][]byte) []string { return slices.Sorted(maps.Keys(content)) }
