package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/cobra"
)

const (
	dialTimeout       = 5 * time.Second
	readHeaderTimeout = 10 * time.Second
)

// gatewayCommand is the hidden daemon between the machine and the cluster. It runs in the machine's network and
// forwards a port of the loopback to the API server. It serves one registry both on the loopback, for pushes, and
// inside the cluster, for the nodes.
func gatewayCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:    "gateway",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runGateway(cmd.Context(), o.layout())
		},
	}
}

func startGateway(s spawner) (*daemon, error) {
	argv, err := s.ownCommand("gateway")
	if err != nil {
		return nil, err
	}
	return s.spawn("gateway", place{cgroup: "gateway"}, argv...)
}

func runGateway(ctx context.Context, l layout) error {
	api, err := listen(ctx, "", l.apiForward())
	if err != nil {
		return err
	}
	outside, err := listen(ctx, "", l.registryForward())
	if err != nil {
		return err
	}
	cluster := l.netns(controlPlanePart)
	inside, err := listen(ctx, cluster, fmt.Sprintf("%s:%d", controlPlaneIP, registryPort))
	if err != nil {
		return err
	}
	images := &http.Server{
		Handler: registry.New(
			registry.WithBlobHandler(registry.NewDiskBlobHandler(l.registry())),
			registry.Logger(log.New(os.Stderr, "registry: ", log.LstdFlags))),
		ReadHeaderTimeout: readHeaderTimeout,
	}
	ended := make(chan error, 3)
	go func() { ended <- images.Serve(outside) }()
	go func() { ended <- images.Serve(inside) }()
	go func() { ended <- forward(ctx, api, cluster, fmt.Sprintf("%s:%d", controlPlaneIP, apiPort)) }()
	return <-ended
}

// listen opens a TCP port in the network namespace at netns, or in this process's own if netns is empty.
func listen(ctx context.Context, netns, addr string) (net.Listener, error) {
	var ln net.Listener
	open := func() error {
		var err error
		ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		return err
	}
	run := open
	if netns != "" {
		run = func() error { return inNetns(netns, open) }
	}
	if err := run(); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return ln, nil
}

// forward forwards each connection accepted by ln to the address to, which it dials in the network namespace at netns.
func forward(ctx context.Context, ln net.Listener, netns, to string) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return fmt.Errorf("accept a connection to %s: %w", to, err)
		}
		go func() {
			if err := carry(ctx, c, netns, to); err != nil {
				log.Printf("forward to %s: %v", to, err)
			}
		}()
	}
}

func carry(ctx context.Context, c net.Conn, netns, to string) error {
	defer c.Close()
	var target net.Conn
	err := inNetns(netns, func() error {
		var err error
		// The address is numeric and of one family, so the dialer creates its socket on this thread.
		target, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to)
		return err
	})
	if err != nil {
		return err
	}
	defer target.Close()
	var wg sync.WaitGroup
	wg.Go(func() { pipe(target, c) })
	pipe(c, target)
	wg.Wait()
	return nil
}

// pipe copies until one side ends and then closes the write side of the other.
func pipe(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && (err == nil || errors.Is(err, io.EOF)) {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
}
