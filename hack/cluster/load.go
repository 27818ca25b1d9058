package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archiveArg is one argument of `load`: a docker archive and the new name of its image, empty to keep the name in the
// archive.
type archiveArg struct{ path, name string }

// parseArchiveArg splits "FILE.tar=NAME" at the first "=" after ".tar", so
// that neither part is restricted otherwise.
func parseArchiveArg(arg string) (archiveArg, error) {
	if file, image, ok := strings.Cut(arg, ".tar="); ok {
		if image == "" {
			return archiveArg{}, fmt.Errorf("%q: write a name after the =, or leave the = out", arg)
		}
		return archiveArg{path: file + ".tar", name: image}, nil
	}
	return archiveArg{path: arg}, nil
}

// open reads the archive, written by `docker save` or go-containerregistry, and returns the image and its names.
func (a archiveArg) open() (v1.Image, []name.Tag, error) {
	img, err := tarball.ImageFromPath(a.path, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s (a docker archive with one image is wanted): %w", a.path, err)
	}
	names := []string{a.name}
	if a.name == "" {
		manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(a.path) })
		if err != nil {
			return nil, nil, fmt.Errorf("read the names in %s: %w", a.path, err)
		}
		names = repoTags(manifest)
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s does not name its image: write %s=NAME:TAG", a.path, a.path)
	}
	var tags []name.Tag
	for _, n := range names {
		t, err := name.NewTag(n)
		if err != nil {
			return nil, nil, fmt.Errorf("name the image of %s: %w", a.path, err)
		}
		tags = append(tags, t)
	}
	return img, tags, nil
}

// push pushes an image to the cluster's registry. Only the repository's path counts there, because nodes pull the
// images of all registries from this one.
func push(ctx context.Context, l layout, tag name.Tag, img v1.Image) error {
	target, err := name.NewTag(fmt.Sprintf("%s/%s:%s", l.registryForward(), tag.RepositoryStr(), tag.TagStr()), name.Insecure)
	if err != nil {
		return fmt.Errorf("name %s in the cluster's registry: %w", tag, err)
	}
	if err := remote.Write(target, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push %s to the cluster's registry at %s: %w", tag, l.registryForward(), err)
	}
	return nil
}

// nodeImageName is the name of an image in containerd.
func nodeImageName(tag name.Tag) string {
	registry := tag.RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return fmt.Sprintf("%s/%s:%s", registry, tag.RepositoryStr(), tag.TagStr())
}

// loadArchives pushes images and removes the old ones of the same names from the nodes. With imagePullPolicy
// IfNotPresent the nodes would keep using the old ones.
func loadArchives(ctx context.Context, l layout, p *progress, args []string) error {
	s, err := completeState(l)
	if err != nil {
		return err
	}
	for _, arg := range args {
		a, err := parseArchiveArg(arg)
		if err != nil {
			return err
		}
		img, tags, err := a.open()
		if err != nil {
			return err
		}
		for _, t := range tags {
			if err := push(ctx, l, t, img); err != nil {
				return err
			}
			if err := forgetImage(ctx, l, s, nodeImageName(t)); err != nil {
				return err
			}
			p.step("loaded %s", t)
		}
	}
	return nil
}

// forgetImage removes the name of an image from all nodes. Containers that run from it keep their files.
func forgetImage(ctx context.Context, l layout, s state, image string) error {
	var all error
	for i := 1; i <= s.Nodes; i++ {
		cmd, err := nodeCommand(ctx, l, nodeName(i), "ctr", "--namespace", "k8s.io", "images", "rm", image)
		if err == nil {
			err = runQuietly(cmd)
		}
		if err != nil && !strings.Contains(err.Error(), "not found") {
			all = errors.Join(all, fmt.Errorf("remove the old %s from node %s: %w", image, nodeName(i), err))
		}
	}
	return all
}

func repoTags(manifest tarball.Manifest) []string {
	var tags []string
	for _, image := range manifest {
		tags = append(tags, image.RepoTags...)
	}
	return tags
}
