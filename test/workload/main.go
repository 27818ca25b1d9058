// Command workload is the program that the end-to-end tests and the demos capture and trace. It is an HTTP server and
// client, a service that is slow for a reason, a sink for UDP, a sender of numbered packets, a user of numbered
// files, a holder of connections, a repository of Helm charts and a flooder of the API server, whose counts tests read. It is also the application, the
// sidecar and the finalizer of a Pod with a FluentPVC.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: workload serve|load|get|prices|ask|sink|send|idle|files|file|numbers|first|calls|hold|guess|flood|write|ship|sum|repository [flags]")
		os.Exit(2)
	}
	commands := map[string]func(*flag.FlagSet, []string) error{
		"serve": serve, "healthy": healthy, "storm": storm, "load": load, "get": fetch, "prices": prices, "ask": ask, "sink": sink, "send": send, "idle": idle, "files": files, "file": file,
		"numbers": numbers, "first": first, "calls": calls, "hold": hold, "guess": guess, "gate": forgeGate, "flood": flood,
		"write": write, "ship": ship, "sum": sum, "repository": repository,
	}
	run, ok := commands[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "workload: unknown command %q\n", os.Args[1])
		os.Exit(2)
	}
	if err := run(flag.NewFlagSet(os.Args[1], flag.ExitOnError), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

// idle does nothing until SIGTERM: a Pod to run commands in.
func idle(_ *flag.FlagSet, _ []string) error {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
	return nil
}
