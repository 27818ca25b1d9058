// Command kubectl-sonde is the plugin for kubectl and oc. Put it on the PATH and run "kubectl sonde" or "oc sonde".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfigs that log in with OIDC or a cloud provider

	"github.com/sonde-operator/sonde/internal/cli"
)

func main() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(signals, syscall.SIGHUP) // the terminal was closed: stop and save, or end the intercept, as on Ctrl-C
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Options{
		Streams:  genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Terminal: terminal(),
		Keyboard: keyboard(),
		Colour:   colour(),
		Width:    width(),
		Signals:  signals,
	}))
}

// terminal returns standard error if it is a terminal that can redraw lines. Standard output may be the captured file.
func terminal() *os.File {
	if os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return os.Stderr
}

// keyboard returns standard input if it is a terminal.
func keyboard() *os.File {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	return os.Stdin
}

// colour reports whether standard output is a terminal with colours that the user has not disabled
// (https://no-color.org).
func colour() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
}

// width returns the width of standard output if it is a terminal. Only there lines are truncated.
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
