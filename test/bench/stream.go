package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// streamPort is where the receiver of the TCP stream listens.
const streamPort = "5201"

// streamBuffer is how much is written and read at a time, in bytes.
const streamBuffer = 256 << 10

// streamWindow is asked for as the sockets' buffers, in bytes. The kernel would make them as large as it likes, and another
// size in each stream: with that, more or less of the data leaves the CPU's cache on its way.
const streamWindow = 256 << 10

// streamed is what a TCP stream reports.
type streamed struct {
	Wall time.Duration `json:"wall"`
	CPU  time.Duration `json:"cpu"` // of both ends
}

// runStream sends bytes from one namespace to the other and is both ends, on one CPU: what a capture adds there shows
// in the CPU time, and in the throughput, which this CPU bounds.
func runStream(args []string) error {
	flags := flag.NewFlagSet("stream", flag.ContinueOnError)
	size := flags.Int64("bytes", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	in, out, err := connectStream(context.Background())
	if err != nil {
		return err
	}
	cpu, start := processTime(os.Getpid()), time.Now()
	received := make(chan error, 1)
	go func() {
		n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{in}, make([]byte, streamBuffer))
		if err == nil && n != *size {
			err = fmt.Errorf("%d bytes of the stream arrived, of %d", n, *size)
		}
		received <- errors.Join(err, in.Close())
	}()
	buffer := make([]byte, streamBuffer)
	for left := *size; left > 0 && err == nil; left -= streamBuffer {
		_, err = out.Write(buffer[:min(left, streamBuffer)])
	}
	if err := errors.Join(err, out.Close(), <-received); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(streamed{Wall: time.Since(start), CPU: processTime(os.Getpid()) - cpu})
}

// connectStream connects the sender's namespace to the target's.
func connectStream(ctx context.Context) (in, out net.Conn, err error) {
	var listener net.Listener
	err = inNamespace(netnsFD, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(targetIP, streamPort))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	err = inNamespace(streamFD, func() (err error) {
		out, err = (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(targetIP, streamPort))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if in, err = listener.Accept(); err != nil {
		return nil, nil, err
	}
	return in, out, errors.Join(in.(*net.TCPConn).SetReadBuffer(streamWindow), out.(*net.TCPConn).SetWriteBuffer(streamWindow))
}

// inNamespace runs fn on a thread of its own in a network namespace.
func inNamespace(fd int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}
