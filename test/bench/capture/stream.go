package capture

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/sonde-operator/sonde/test/bench/host"
)

// streamPort is the port of the receiver.
const streamPort = "5201"

// streamBuffer is the size of reads and writes, in bytes.
const streamBuffer = 256 << 10

// streamWindow is the size of the sockets' buffers, in bytes. Otherwise the kernel would choose another size for each
// stream, and with it how much of the data stays in the CPU's cache.
const streamWindow = 256 << 10

// streamed is the report of a stream.
type streamed struct {
	Wall time.Duration `json:"wall"`
	CPU  time.Duration `json:"cpu"` // of both ends
}

// runStream sends bytes from one namespace to the other. Both ends run on one CPU, so the cost of a capture shows in
// its CPU time, and in the throughput, which this CPU limits.
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
	cpu, start := host.ProcessTime(os.Getpid()), time.Now()
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
	return json.NewEncoder(os.Stdout).Encode(streamed{Wall: time.Since(start), CPU: host.ProcessTime(os.Getpid()) - cpu})
}

// connectStream connects the sender's namespace to the target's.
func connectStream(ctx context.Context) (in, out net.Conn, err error) {
	var listener net.Listener
	err = host.InNamespace(host.NetnsFD, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(host.TargetIP, streamPort))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	err = host.InNamespace(host.StreamFD, func() (err error) {
		out, err = (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(host.TargetIP, streamPort))
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
