// Command kubectl-sonde is the plugin for kubectl and oc: put it on the PATH and call it as
// "kubectl sonde" or "oc sonde".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs that log in by OIDC or a cloud's helper

	"github.com/sonde-operator/sonde/internal/cli"
)

func main() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Options{
		Streams:  genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Terminal: terminal(),
		Colour:   colour(),
		Width:    width(),
		Signals:  signals,
	}))
}

// terminal is the standard error, where it is one that can redraw: the standard output may be the file.
func terminal() *os.File {
	if os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return os.Stderr
}

// colour says whether the standard output shows colours, and may (https://no-color.org).
func colour() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
}

// width of the standard output, if that is a terminal; a line that is cut there is whole anywhere else.
func width() func() int {
	fd := int(os.Stdout.Fd())
	if !term.IsTerminal(fd) {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(fd)
		if err != nil {
			return 0
		}
		return width
	}
}
