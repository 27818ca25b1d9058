package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// snapLen is the engine's default.
const snapLen = 262144

// content is a parsed capture file.
type content struct {
	ifaces  []*pcapng.Interface
	packets map[int][]pcapng.Packet
	stats   map[int]*pcapng.Statistics
	err     error // nil for a complete file
}

func readFile(t *testing.T, path string) *content {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &content{packets: map[int][]pcapng.Packet{}, stats: map[int]*pcapng.Statistics{}}
	r := pcapng.NewReader(bytes.NewReader(b))
	for {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		switch block := block.(type) {
		case nil:
			c.err = err
			return c
		case *pcapng.Interface:
			c.ifaces = append(c.ifaces, block)
		case *pcapng.Packet:
			p := *block
			p.Data = bytes.Clone(p.Data)
			c.packets[int(p.Interface)] = append(c.packets[int(p.Interface)], p)
		case *pcapng.Statistics:
			c.stats[int(block.Interface)] = block
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
