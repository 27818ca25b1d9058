package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// healthy answers gRPC health checks until SIGTERM.
func healthy(f *flag.FlagSet, args []string) error {
	addr := f.String("listen", ":8080", "address")
	if err := f.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *addr) //nolint:noctx // for the whole life of the process
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
		s.Stop()
	}()
	if err := s.Serve(l); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
