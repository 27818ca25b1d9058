package follow

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// valve is an output that can be blocked, like a pipe whose reader has stopped.
type valve struct {
	output
	open chan struct{}
}

func (v *valve) Write(b []byte) (int, error) {
	<-v.open
	return v.output.Write(b)
}

// keeper sends the file of one Pod, and leaves out what its reader has no room for, as the real one does.
type keeper struct {
	packets int
	newest  atomic.Bool
	sent    chan struct{} // closed when all was sent or left out
}

const largePacket = 64 << 10

func (k *keeper) blocks(ctx context.Context, _, _ string, newest bool, w results.BlockSink) error {
	k.newest.Store(newest)
	data := make([]byte, largePacket)
	writes := [][]byte{pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})}
	for n := range k.packets {
		writes = append(writes, pcapng.AppendPacket(nil, &pcapng.Packet{Time: uint64(n), Data: data, Length: largePacket}))
	}
	connection := make(chan []byte)
	received := make(chan error, 1)
	go func() {
		for b := range connection {
			if _, err := w.Write(b); err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	var gap uint64
	for _, b := range writes {
		patience := time.Millisecond
		if !newest || len(b) < largePacket { // blocks that are no packets are never left out
			patience = time.Hour
		}
		select {
		case connection <- b:
		case <-time.After(patience):
			gap++
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(k.sent)
	close(connection)
	err := <-received
	if gap > 0 {
		w.Gap(gap, false)
	}
	return err
}

// A blocked reader holds up a bounded number of bytes. The keeper leaves out the rest, and the stream counts it: read, written and left out
// add up to all packets.
func TestBlockedReader(t *testing.T) {
	out := &valve{open: make(chan struct{})}
	k := &keeper{packets: 2 * maxBuffered / largePacket, sent: make(chan struct{})}
	w := &world{t: t, out: &out.output}
	w.Stream = New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: out, Blocks: k.blocks})
	w.Update(update("a"))
	<-k.sent // although nothing was read
	w.mu.Lock()
	held := w.queue.Bytes()
	w.mu.Unlock()
	if held > maxBuffered+largePacket+queuedSlack {
		t.Errorf("%d bytes are held", held)
	}
	close(out.open)
	r, got, stats := w.finish()
	if !k.newest.Load() || r.Skipped == 0 || int(r.Skipped)+len(got) != k.packets || int(r.Packets) != len(got) {
		t.Errorf("%d packets in the stream, %d left out, of %d", len(got), r.Skipped, k.packets)
	}
	if len(stats) != 1 || *stats[0].IfDrop != r.Skipped {
		t.Errorf("statistics %+v, want %d dropped", stats, r.Skipped)
	}
}

const queuedSlack = 1 << 10

// A complete stream waits for its reader.
func TestCompleteStream(t *testing.T) {
	out := &valve{open: make(chan struct{})}
	k := &keeper{packets: 2 * maxBuffered / largePacket, sent: make(chan struct{})}
	w := &world{t: t, out: &out.output}
	w.Stream = New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: out, Blocks: k.blocks, Complete: true})
	w.Update(update("a"))
	time.AfterFunc(300*time.Millisecond, func() { close(out.open) })
	r, got, _ := w.finish()
	if k.newest.Load() || len(got) != k.packets || r.Skipped != 0 {
		t.Errorf("%d of %d packets, %+v", len(got), k.packets, r)
	}
}

// The end of the context ends a stream whose reader takes nothing, and reports it.
func TestInterruptedWhileBlocked(t *testing.T) {
	out := &valve{open: make(chan struct{})}
	defer close(out.open)
	k := &keeper{packets: 2 * maxBuffered / largePacket, sent: make(chan struct{})}
	s := New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: out, Blocks: k.blocks, Complete: true})
	s.Update(update("a"))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if _, err := s.Finish(ctx); err == nil {
		t.Error("no error")
	}
}
