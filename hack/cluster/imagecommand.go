package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
)

// imageCommand writes an image from static binaries without a docker daemon.
func imageCommand() *cobra.Command {
	var out, ref, user string
	var entrypoint []string
	cmd := &cobra.Command{
		Use:   "image -o FILE.tar --name NAME:TAG PATH=FILE...",
		Short: "Write an image that holds static binaries only, as a docker archive",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := parseFiles(args)
			if err != nil {
				return err
			}
			spec := imageSpec{files: files, entrypoint: entrypoint, user: user}
			return spec.write(out, ref)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "docker archive to write")
	cmd.Flags().StringVar(&ref, "name", "", "name and tag of the image")
	cmd.Flags().StringVar(&user, "user", "", "user that the image runs as, UID:GID")
	cmd.Flags().StringSliceVar(&entrypoint, "entrypoint", nil, "program and arguments")
	for _, f := range []string{"output", "name"} {
		// This fails only for a flag that does not exist.
		_ = cmd.MarkFlagRequired(f)
	}
	return cmd
}

// parseFiles parses PATH=FILE arguments: the path in the image and the file of the machine.
func parseFiles(args []string) (map[string]string, error) {
	files := map[string]string{}
	for _, a := range args {
		path, file, ok := strings.Cut(a, "=")
		path = strings.TrimPrefix(path, "/")
		if !ok || path == "" || file == "" {
			return nil, fmt.Errorf("%q: write PATH=FILE, like manager=bin/manager", a)
		}
		files[path] = file
	}
	return files, nil
}

// write builds the image and writes it as a docker archive. It refuses a file that is not static, because the image
// contains nothing else.
func (s imageSpec) write(out, ref string) error {
	for _, p := range slices.Sorted(maps.Keys(s.files)) {
		if err := checkStatic(s.files[p]); err != nil {
			return fmt.Errorf("%w: build it with CGO_ENABLED=0", err)
		}
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	img, err := s.build()
	if err != nil {
		return err
	}
	// Renaming never shows readers half an archive.
	if err := tarball.WriteToFile(out+".new", tag, img); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", out, err), os.Remove(out+".new"))
	}
	return os.Rename(out+".new", out)
}
