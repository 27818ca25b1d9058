// Command image writes container images from files, and pushes them, without a docker daemon. The same files and flags
// give the same digest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "image", Short: "Write and push container images without a docker daemon",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(buildCommand(), pushCommand(), digestCommand())
	return root
}

// buildFlags are the unparsed flags of build.
type buildFlags struct {
	out, name, labelsFile, user, created string
	labels, archs, entrypoint            []string
}

func buildCommand() *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:   "build -o FILE.tar --name NAME:TAG PATH=FILE...",
		Short: "Write an image of files and directories",
		Long: "Write an image of files and directories. One architecture gives a docker archive, several give an OCI layout\n" +
			"with an image index. {arch} in a FILE stands for the architecture. Programs must be static, and of the architecture.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.spec(args)
			if err != nil {
				return err
			}
			lines, err := s.write(f.out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(lines, "\n"))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "archive to write")
	flags.StringVar(&f.name, "name", "", "name and tag of the image")
	flags.StringSliceVar(&f.archs, "arch", []string{"amd64"}, "architectures, of linux")
	flags.StringArrayVar(&f.labels, "label", nil, "label, KEY=VALUE")
	flags.StringVar(&f.labelsFile, "labels", "", "YAML file with a map of labels under any key, like a bundle's annotations.yaml")
	flags.StringVar(&f.user, "user", "", "user that the image runs as, UID:GID")
	flags.StringVar(&f.created, "created", "", "day that the image says it was made, like 2026-03-04")
	flags.StringSliceVar(&f.entrypoint, "entrypoint", nil, "program and arguments")
	for _, required := range []string{"output", "name"} {
		// This fails only for a flag that does not exist.
		_ = cmd.MarkFlagRequired(required)
	}
	return cmd
}

func (f buildFlags) spec(args []string) (spec, error) {
	s := spec{name: f.name, archs: f.archs, user: f.user, entrypoint: f.entrypoint, labels: map[string]string{}, files: map[string]string{}}
	if f.created != "" {
		day, err := time.Parse(time.DateOnly, f.created)
		if err != nil {
			return spec{}, fmt.Errorf("read --created: %w; write it like 2026-03-04", err)
		}
		s.created = day
	}
	if err := readLabels(s.labels, f.labelsFile); err != nil {
		return spec{}, err
	}
	for _, l := range f.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" || value == "" {
			return spec{}, fmt.Errorf("--label %q: write KEY=VALUE", l)
		}
		s.labels[key] = value
	}
	for _, a := range args {
		path, file, ok := strings.Cut(a, "=")
		path = strings.Trim(path, "/")
		if !ok || path == "" || file == "" {
			return spec{}, fmt.Errorf("%q: write PATH=FILE, like manager=bin/manager", a)
		}
		s.files[path] = file
	}
	return s, nil
}

func pushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "push FILE.tar REGISTRY/NAME:TAG",
		Short: "Push an archive that build wrote, and print the name with the digest",
		Long:  "Push an archive that build wrote, and print the name with the digest. The credentials come from docker's configuration.",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pinned, err := push(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
			return err
		},
	}
}

func digestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "digest FILE.tar",
		Short: "Print the digest that an archive of build will have in a registry",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := digest(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), d)
			return err
		},
	}
}
