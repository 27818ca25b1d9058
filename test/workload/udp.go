package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sonde-operator/sonde/test/numbered"
)

// sink receives and discards UDP packets, so that no ICMP error answers them.
func sink(f *flag.FlagSet, args []string) error {
	addr := f.String("listen", ":9999", "address")
	if err := f.Parse(args); err != nil {
		return err
	}
	c, err := net.ListenPacket("udp", *addr) //nolint:noctx // lives as long as the process
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		_ = c.Close()
	}()
	b := make([]byte, 65536)
	for {
		if _, _, err := c.ReadFrom(b); errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read: %w", err)
		}
	}
}

// Sent is the line that send prints: how many packets really left.
type Sent struct {
	Run    uint32 `json:"run"`
	First  uint64 `json:"first"`
	Count  uint64 `json:"count"`
	Failed uint64 `json:"failed"`
}

// send sends numbered UDP packets and prints, as JSON, how many the kernel accepted.
func send(f *flag.FlagSet, args []string) error {
	to := f.String("to", "", "host:port")
	run := f.Uint("run", 1, "number of this run")
	first := f.Uint64("first", 0, "first number")
	count := f.Uint64("count", 1000, "number of packets")
	size := f.Int("size", 64, "bytes of payload")
	rate := f.Int("rate", 2000, "packets per second; 0: as fast as possible")
	if err := f.Parse(args); err != nil {
		return err
	}
	c, err := net.Dial("udp", *to) //nolint:noctx // UDP: nothing to wait for
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer c.Close()
	sent := Sent{Run: uint32(*run), First: *first} //nolint:gosec // a small number in tests
	b := make([]byte, max(*size, numbered.MinSize))
	start := time.Now()
	for seq := *first; seq < *first+*count; seq++ {
		if *rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(seq-*first) * time.Second / time.Duration(*rate))))
		}
		numbered.Put(b, sent.Run, seq)
		_, err := c.Write(b)
		if err != nil {
			// An ICMP error for an earlier packet, such as port unreachable, is reported here and prevents this write:
			// try once more.
			_, err = c.Write(b)
		}
		if err != nil {
			sent.Failed++
			continue
		}
		sent.Count++
	}
	return json.NewEncoder(os.Stdout).Encode(sent)
}
