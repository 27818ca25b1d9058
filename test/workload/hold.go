package main

import (
	"context"
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
