// Command wireguard is one end of a stream through WireGuard with TCP/IP in userspace at both ends, the peer of the
// streams of test/bench/intercept. The source sends bytes to the sink. The CPU time of both processes is the tunnel's:
// beside it they only fill and drop a buffer.
package main

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

const (
	mtu    = 1420 // bytes, as wg-quick sets it
	port   = 51820
	buffer = 256 << 10 // bytes of a read or a write
	source = "source"
	sink   = "sink"
)

// inside are the addresses of both ends in the tunnel.
var inside = map[string]netip.AddrPort{source: netip.MustParseAddrPort("192.0.2.1:9000"), sink: netip.MustParseAddrPort("192.0.2.2:9000")}

func main() {
	peer := flag.String("peer", "", "`address` of the other end outside of the tunnel")
	size := flag.Int64("bytes", 0, "`bytes` that the source sends")
	flag.Parse()
	run, ends := map[string]func(*netstack.Net, int64) error{source: send, sink: receive}, map[string]string{source: sink, sink: source}
	if flag.NArg() != 1 || run[flag.Arg(0)] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench-wireguard -peer ADDRESS [-bytes N] source|sink")
		os.Exit(64)
	}
	network, err := connect(flag.Arg(0), ends[flag.Arg(0)], *peer)
	if err == nil {
		err = run[flag.Arg(0)](network, *size)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-wireguard:", err)
		os.Exit(1)
	}
}

// key returns the private key of an end. It protects nothing, so both processes derive it from the end's name.
func key(end string) (*ecdh.PrivateKey, error) {
	seed := sha256.Sum256([]byte(end))
	return ecdh.X25519().NewPrivateKey(seed[:])
}

// connect returns the network inside of the tunnel between this end and the other.
func connect(own, other, peer string) (*netstack.Net, error) {
	private, err1 := key(own)
	public, err2 := key(other)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	tun, network, err := netstack.CreateNetTUN([]netip.Addr{inside[own].Addr()}, nil, mtu)
	if err != nil {
		return nil, fmt.Errorf("make TCP/IP: %w", err)
	}
	d := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, own+": "))
	err = d.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=%d\npublic_key=%x\nallowed_ip=%s/32\nendpoint=%s:%d\n",
		private.Bytes(), port, public.PublicKey().Bytes(), inside[other].Addr(), peer, port))
	if err != nil {
		return nil, fmt.Errorf("configure WireGuard: %w", err)
	}
	return network, d.Up()
}

// send sends the bytes to whoever connects, and says when it listens. bench ends it.
func send(network *netstack.Net, size int64) error {
	l, err := network.ListenTCPAddrPort(inside[source])
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println("ready")
	for b := make([]byte, buffer); ; {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		for left := size; left > 0 && err == nil; left -= buffer {
			_, err = c.Write(b[:min(left, buffer)])
		}
		if err := errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// received is the report of the sink.
type received struct {
	Bytes int64         `json:"bytes"`
	Wall  time.Duration `json:"wall"` // from the first to the last byte
}

// receive reads until the source ends.
func receive(network *netstack.Net, _ int64) error {
	c, err := network.DialContextTCPAddrPort(context.Background(), inside[source])
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	var r received
	var began time.Time
	for b := make([]byte, buffer); ; {
		n, err := c.Read(b)
		if r.Bytes == 0 {
			began = time.Now()
		}
		r.Bytes += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	r.Wall = time.Since(began)
	return json.NewEncoder(os.Stdout).Encode(r)
}
