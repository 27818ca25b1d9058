package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/podstreams"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// maxInterfaces of a Pod, of all sections of its file together. A probe captures as many at most.
	maxInterfaces = 4096
	// maxDescribed is how many bytes their descriptions may have. Each has the capture's filter, of up to 4 KiB.
	maxDescribed = 32 << 20
	// maxControl is how many bytes of descriptions wait at most to be written.
	maxControl = 1 << 20
)

// pod is the state of one Pod's stream. It is a results.BlockSink.
type pod struct {
	stream *Stream
	ctx    context.Context //nolint:containedctx // io.Writer has none
	uid    string
	parser pcapng.Parser
	// progress of its stream, under the lock of the Stream.
	progress *progress
	block    []byte // of the last packet
	sections
	// interfaces that it has described, and their bytes.
	interfaces, described int
	began                 bool // a packet was read
	// missed packets from before the Pod has an interface.
	missed uint64
	// earlier packets, from before the stream began, at the beginning of its file.
	earlier uint64
}

// readPod reads the stream of one Pod. A Pod whose file was gone before the first packet came is in Result.Gone: it ended long before the
// others, or its agent was lost.
func (s *Stream) readPod(ctx context.Context, of podstreams.Pod) error {
	p := &pod{stream: s, ctx: ctx, uid: of.UID, earlier: uint64(of.Packets)}
	s.mu.Lock()
	p.progress = s.sources.join(of.UID)
	s.result.Read[of.UID] = 0 // it has no other stream
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sources.leave(of.UID)
	}()
	err := s.o.Blocks(ctx, of.UID, of.File, !s.o.Complete, p)
	if err == nil {
		return nil
	}
	if isGone(err) && !p.began {
		s.mu.Lock()
		delete(s.result.Read, of.UID)
		if s.result.Gone == nil {
			s.result.Gone = map[string]bool{}
		}
		s.result.Gone[of.UID] = true
		s.mu.Unlock()
		return nil
	}
	err = fmt.Errorf("Pod %s: %w", of.Name, err) //nolint:staticcheck // a kind
	if errors.Is(err, results.ErrNoLiveRing) {
		s.refuse(err)
	}
	return err
}

// isGone reports whether the manager says that a file is not in the cluster any more.
func isGone(err error) bool {
	refused, ok := errors.AsType[*results.Error](err)
	return ok && refused.FromManager && refused.Code == http.StatusGone
}

// Write accepts one whole block.
func (p *pod) Write(block []byte) (int, error) {
	b, err := p.parser.Parse(block)
	if err != nil {
		return 0, err
	}
	switch b := b.(type) {
	case *pcapng.Section:
		p.stream.mu.Lock()
		p.begin(p.stream.stats)
		p.stream.mu.Unlock()
	case *pcapng.Interface:
		if !p.again(block) {
			err = p.describe(b, len(block))
		}
	case *pcapng.Packet:
		b.Interface = p.numbers[b.Interface]
		p.block = pcapng.AppendPacket(p.block[:0], b)
		err = p.stream.add(p, b)
	case *pcapng.Statistics:
		b.Interface = p.numbers[b.Interface]
		b.Comments = nil // a probe writes none, and these would stay in memory until the end
		p.stream.mu.Lock()
		p.stream.stats[b.Interface] = p.sum(b)
		p.stream.mu.Unlock()
	}
	return len(block), err
}

// describe adds an interface to the stream, which its Pod has described in so many bytes. It waits while descriptions wait to be
// written. Their number is limited, because each stays in memory until the end.
func (p *pod) describe(i *pcapng.Interface, size int) error {
	s := p.stream
	p.interfaces++
	p.described += size
	if p.interfaces > maxInterfaces || p.described > maxDescribed {
		return fmt.Errorf("%w: it describes more than %d interfaces, or these in more than %d MiB, as no probe does", pcapng.ErrFormat, maxInterfaces, maxDescribed>>20)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.awaitRoom(p.ctx, func() bool { return len(s.control) <= maxControl }); err != nil {
		return err
	}
	p.numbers = append(p.numbers, uint32(len(s.stats)))
	s.stats, s.read = append(s.stats, nil), append(s.read, 0)
	s.control = pcapng.AppendInterface(s.control, i)
	s.addNames()
	s.lost[p.numbers[0]] += p.missed
	p.missed = 0
	return nil
}

// awaitRoom waits until there is room, or ctx ends. The caller holds the lock.
func (s *Stream) awaitRoom(ctx context.Context, hasRoom func() bool) error {
	if hasRoom() && ctx.Err() == nil {
		return nil
	}
	s.waiting++
	defer func() { s.waiting-- }()
	s.room.Broadcast() // a Pod that waited for this one may be behind it now
	for !hasRoom() && ctx.Err() == nil {
		if s.queue.Bytes() > maxBuffered || len(s.control) > maxControl {
			select {
			case s.full <- struct{}{}:
			default:
			}
		}
		s.room.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// ahead is how much further than the last Pod another one may be when there is little room, in nanoseconds. The last room is enough for so
// much of 300 MB/s.
const ahead = uint64(10 * time.Millisecond)

// hasRoom reports whether a Pod may add a packet. The last room is for the Pods that others wait for: their packets leave first.
func (s *Stream) hasRoom(p *progress) bool {
	switch waiting := s.queue.Bytes(); {
	case waiting <= keptBuffered:
		return true
	case waiting > maxBuffered:
		return false
	}
	return p.reached() <= s.sources.reached()+ahead
}

// add queues the packet in p.block. It waits while the queue is full: then the connection to the keeper fills, and the keeper counts what
// it leaves out. The wait ends with the context of the Pod.
func (s *Stream) add(p *pod, b *pcapng.Packet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.awaitRoom(p.ctx, func() bool { return s.hasRoom(p.progress) }); err != nil {
		return err
	}
	p.began = true
	s.activity++
	s.result.Read[p.uid]++
	s.read[b.Interface]++
	p.progress.newest = max(p.progress.newest, b.Time)
	s.queue.push(b.Time, p.block, time.Now())
	return nil
}

// Until notes that all packets up to a time have come, so that later ones are not from before the stream. Those packets that this lets
// leave do so at once.
func (p *pod) Until(at uint64) {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	p.progress.until, p.began = at, true
	if first, ok := s.queue.First(); !ok || first > s.sources.complete(time.Now()) {
		return
	}
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// Gap counts packets that were skipped. The first gap of a Pod is before its first packet. If the Pod had to wait, only the packets that its
// file had at first are from before the stream.
func (p *pod) Gap(packets uint64, waited bool) {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result.LeftOut == nil {
		s.result.LeftOut = map[string]int64{}
	}
	s.result.LeftOut[p.uid] += int64(packets)
	earlier := uint64(0)
	if !p.began && !s.o.FromStart {
		earlier = packets
		if waited {
			earlier = min(packets, p.earlier)
		}
		p.earlier -= min(earlier, p.earlier)
	}
	packets -= earlier
	s.result.Earlier += earlier
	if p.began || !waited {
		s.result.Skipped += packets
	} else {
		s.result.Waited += packets
	}
	if len(p.numbers) == 0 {
		p.missed += packets
		return
	}
	s.lost[p.numbers[0]] += packets
}
