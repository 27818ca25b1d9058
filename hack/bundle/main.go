// Command bundle writes the OLM bundle, bundle/ and bundle.Dockerfile, from kustomize's output of config/manifests on
// standard input. The same input gives the same bytes, so a stale bundle shows as a difference in git.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// release holds the parts of a bundle that differ between versions.
type release struct {
	version string
	date    time.Time
	image   string // of manager and agents, as the cluster pulls it
	// releaserImage runs Helm for Collectors.
	releaserImage string
	channel       string
	icon          []byte // SVG
}

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader) error {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	version := flags.String("version", "", "version of the operator, like 0.1.0")
	date := flags.String("date", "", "day of the release, like 2026-11-20")
	image := flags.String("image", "", "image of the operator, as the cluster pulls it")
	releaserImage := flags.String("releaser-image", "", "image of the releaser, as the cluster pulls it")
	channel := flags.String("channel", "candidate", "channel of the catalog")
	icon := flags.String("icon", "", "file of the icon, SVG")
	out := flags.String("out", ".", "directory that gets bundle/ and bundle.Dockerfile")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *version == "" || *image == "" || *releaserImage == "" {
		return fmt.Errorf("-version, -image or -releaser-image is not set: run make bundle")
	}
	day, err := time.Parse(time.DateOnly, *date)
	if err != nil {
		return fmt.Errorf("read -date: %w; write VERSION as version and day, like 0.1.0 2026-11-20", err)
	}
	svg, err := os.ReadFile(*icon)
	if err != nil {
		return fmt.Errorf("read the icon: %w", err)
	}
	stream, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the manifests: %w", err)
	}
	files, err := build(stream, release{version: *version, date: day, image: *image, releaserImage: *releaserImage, channel: *channel, icon: svg})
	if err != nil {
		return err
	}
	return write(*out, files)
}
