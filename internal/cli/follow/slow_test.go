package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
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

// described sends interfaces, each in a section of its own and different from the others, until the stream takes no more.
func described(size int, sent *atomic.Int64) func(context.Context, string, string, bool, results.BlockSink) error {
	section := pcapng.AppendSection(nil, &pcapng.Section{})
	one := func(n int) []byte {
		return pcapng.AppendInterface(nil, &pcapng.Interface{Name: fmt.Sprintf("%08d", n), Description: string(make([]byte, size)), LinkType: pcapng.LinkTypeEthernet})
	}
	return func(_ context.Context, _, _ string, _ bool, w results.BlockSink) error {
		for n := range 2 * maxDescribed / len(one(0)) {
			for _, b := range [][]byte{section, one(n)} {
				if _, err := w.Write(b); err != nil {
					return err
				}
			}
			sent.Add(1)
		}
		return nil
	}
}

// A keeper that was taken over describes interfaces without end. The stream holds a bounded number, and then says that the file is
// damaged.
func TestInterfacesWithoutEnd(t *testing.T) {
	for name, size := range map[string]int{"short": 10, "long": 32 << 10} {
		t.Run(name, func(t *testing.T) {
			out := &valve{open: make(chan struct{})}
			var sent atomic.Int64
			w := &world{t: t, out: &out.output}
			w.Stream = New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: out, Blocks: described(size, &sent)})
			w.Update(update("a"))
			for last := int64(-1); sent.Load() != last; time.Sleep(200 * time.Millisecond) { // until it waits for the reader, or has ended
				last = sent.Load()
			}
			w.mu.Lock()
			held := len(w.control)
			w.mu.Unlock()
			if held > maxControl+size+queuedSlack {
				t.Errorf("%d bytes of descriptions are held", held)
			}
			close(out.open)
			if _, err := w.Finish(t.Context()); !errors.Is(err, pcapng.ErrFormat) {
				t.Errorf("%v, want %v", err, pcapng.ErrFormat)
			}
			if n := sent.Load(); n > maxInterfaces || n*int64(size) > maxDescribed || len(w.stats) != int(n) {
				t.Errorf("%d interfaces of %d bytes were accepted", n, size)
			}
		})
	}
}

// What a keeper writes into statistics does not stay in memory.
func TestStatisticsWithoutComments(t *testing.T) {
	w := newWorld(t, 50*time.Millisecond)
	a := w.join("a")
	w.write(a, pcapng.AppendStatistics(nil, &pcapng.Statistics{Time: 20, Comments: []string{"long"}}))
	close(a.ended)
	if _, _, stats := w.finish(); len(stats) != 1 || len(stats[0].Comments) != 0 {
		t.Errorf("%+v", stats)
	}
}

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

// largeFile returns the blocks of a file with so many large packets, one each millisecond.
func largeFile(packets int) [][]byte {
	data := make([]byte, largePacket)
	blocks := [][]byte{pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})}
	for n := range packets {
		blocks = append(blocks, pcapng.AppendPacket(nil, &pcapng.Packet{Time: uint64(n+1) * uint64(time.Millisecond), Data: data, Length: largePacket}))
	}
	return blocks
}

// A Pod whose packets come later than those of others does not lose its place in the order of time, although the others have more than the
// stream holds: they wait for it.
func TestPodBehind(t *testing.T) {
	const packets = 3 * maxBuffered / largePacket
	blocks := largeFile(packets)
	var begun sync.WaitGroup
	begun.Add(3)
	held := make(chan struct{}) // closed when the others wait
	s := New(t.Context(), Options{Delay: time.Minute, Out: io.Discard, Blocks: func(_ context.Context, pod, _ string, _ bool, w results.BlockSink) error {
		begun.Done()
		begun.Wait()
		if pod == "slow" {
			<-held
		}
		for _, b := range blocks {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}})
	for _, pod := range []string{"a", "b", "slow"} {
		s.Update(update(pod))
	}
	for waiting := 0; waiting < 2; runtime.Gosched() {
		s.mu.Lock()
		waiting = s.waiting
		s.mu.Unlock()
	}
	close(held)
	most := watchMemory(s)
	r, err := s.Finish(t.Context())
	if err != nil || r.Packets != 3*packets || r.Late > 0 {
		t.Errorf("%d of %d packets, %d of them late, %v", r.Packets, 3*packets, r.Late, err)
	}
	if held := most(); held > maxBuffered+largePacket+queuedSlack {
		t.Errorf("%d bytes were held", held)
	}
}

// watchMemory returns a function that returns the most bytes that were held.
func watchMemory(s *Stream) func() int {
	end, most := make(chan struct{}), make(chan int)
	go func() {
		held := 0
		for {
			s.mu.Lock()
			held = max(held, s.queue.Bytes())
			s.mu.Unlock()
			select {
			case <-end:
				most <- held
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int {
		close(end)
		return <-most
	}
}

// A Pod that sends nothing, and does not say how far it is, holds up the others only for a moment.
func TestPodThatSendsNothing(t *testing.T) {
	const packets = 3 * maxBuffered / largePacket
	blocks := largeFile(packets)
	ended := make(chan struct{})
	s := New(t.Context(), Options{Delay: time.Minute, Out: io.Discard, Blocks: func(ctx context.Context, pod, _ string, _ bool, w results.BlockSink) error {
		if pod == "silent" {
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return nil
		}
		for _, b := range blocks {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	}})
	for _, pod := range []string{"silent", "a", "b"} {
		s.Update(update(pod))
	}
	const left = 2*packets - maxBuffered/largePacket
	for deadline := time.After(10 * time.Second); ; {
		s.mu.Lock()
		n := s.result.Packets
		s.mu.Unlock()
		if n >= left {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("%d packets have left, want %d", n, left)
		case <-time.After(tick):
		}
	}
	close(ended)
	if r, err := s.Finish(t.Context()); err != nil || r.Packets != 2*packets {
		t.Errorf("%d of %d packets, %v", r.Packets, 2*packets, err)
	}
}
