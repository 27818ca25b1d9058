package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/bench/capture"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Pauses between two packets: from leastPause to leastPause + pauseSpan, at random, so that no interval of a probe, a
// keeper or a reader falls into step with them.
const (
	leastPause = 150 * time.Millisecond
	pauseSpan  = 300 * time.Millisecond
)

// Bytes of the packets: of those until tshark shows them, and of the first measured one. Each measured packet has its own size, by
// which it is recognized.
const (
	warmSize  = 60
	firstSize = 100
	// MostPackets are measured by one way.
	MostPackets = 1000
)

// settle is how long tshark gets to catch up with the first packets. It is longer than the time for which a stream expects further Pods.
const settle = 1500 * time.Millisecond

// record captures a namespace by a probe, and starts its keeper.
func (w *world) record(ctx context.Context, of *os.File) error {
	name := fmt.Sprint("bench-", len(w.pods))
	dir := filepath.Join(w.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	r, err := capture.Record(ctx, w.b, of, dir, fmt.Sprintf("udp port %d", figures.FloodPort))
	if err != nil {
		return err
	}
	w.ended = append(w.ended, r.Kill)
	file := ""
	err = host.Await(ctx, "the capture has a file", func() (bool, error) {
		file, err = r.File()
		return err == nil, host.StillRuns(r.PID())
	})
	if err != nil {
		return err
	}
	keeper, err := w.keep(ctx, r.Results, r.Control)
	w.pods = append(w.pods, pod{Name: name, UID: "uid-" + name, Keeper: keeper, File: file})
	return err
}

// latency measures the time from a packet on the wire to its line in tshark.
func latency(ctx context.Context, b *host.Env, way *figures.LiveWay, o *Sizes) (out figures.Latency, err error) {
	out.Way = way.Name
	w, err := newWorld(b)
	if err != nil {
		return out, err
	}
	defer w.close()
	open := w.captured
	if way.Alone {
		open = w.alone
	}
	lines, packets, err := open(ctx, way, o)
	if err != nil {
		return out, err
	}
	defer packets.Close()
	err = host.Await(ctx, "tshark shows packets", func() (bool, error) {
		return lines.count(warmSize) > 0, packets.send(warmSize)
	})
	if err != nil {
		return out, fmt.Errorf("%w: %s", err, lines.said.String())
	}
	time.Sleep(settle)
	for i := range o.Packets {
		if err := packets.send(firstSize + i); err != nil {
			return out, err
		}
		time.Sleep(leastPause + rand.N(pauseSpan))
	}
	err = host.Await(ctx, "tshark shows all packets", func() (bool, error) {
		out.Times = lines.measured(o.Packets)
		return len(out.Times) == o.Packets, nil
	})
	if err != nil {
		err = fmt.Errorf("%d of %d packets: %w: %s", len(out.Times), o.Packets, err, lines.said.String())
	}
	return out, err
}

// captured starts probes, keepers, the plugin and tshark.
func (w *world) captured(ctx context.Context, way *figures.LiveWay, o *Sizes) (*lines, packets, error) {
	for _, of := range []*os.File{w.b.Net.Target, w.b.Net.Beside}[:1+way.Quiet] {
		if err := w.record(ctx, of); err != nil {
			return nil, nil, err
		}
	}
	follow, err := w.follow(ctx, o.Plugin, way.Args...)
	if err != nil {
		return nil, nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	defer out.Close()
	l := &lines{times: map[int][]time.Duration{}}
	follow.Stdout, follow.Stderr = out, &l.said
	if err := follow.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %v: %w", follow.Args, err)
	}
	w.ended = append(w.ended, func() { host.Kill(follow) })
	if err := w.read(ctx, l, in, way); err != nil {
		return nil, nil, err
	}
	s, err := w.newSender(ctx)
	return l, s, err
}

// alone starts tshark, which reads what bench writes.
func (w *world) alone(ctx context.Context, way *figures.LiveWay, _ *Sizes) (*lines, packets, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	l := &lines{times: map[int][]time.Duration{}}
	if err := w.read(ctx, l, in, way); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	_, err = out.Write(fileHead())
	return l, direct{out}, err
}

// packets that tshark shows.
type packets interface {
	// send sends a packet of so many bytes.
	send(size int) error
	Close() error
}

// direct writes packets to a pipe.
type direct struct{ *os.File }

func (d direct) send(size int) error {
	_, err := d.Write(pcapng.AppendPacket(nil, &pcapng.Packet{Time: uint64(time.Now().UnixNano()), Data: make([]byte, size), Length: uint32(size)}))
	return err
}

// sender sends packets to a port of the target where nothing listens.
type sender struct {
	net.PacketConn
	to net.Addr
}

func (w *world) newSender(ctx context.Context) (*sender, error) {
	s := &sender{to: &net.UDPAddr{IP: net.ParseIP(host.TargetIP), Port: figures.FloodPort}}
	err := host.InNamespace(int(w.b.Net.Sender.Fd()), func() (err error) {
		s.PacketConn, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp4", ":0")
		return err
	})
	return s, err
}

func (s *sender) send(size int) error {
	const headers = 14 + 20 + 8
	_, err := s.WriteTo(make([]byte, size-headers), s.to)
	return err
}

// lines are the times from a packet to its line in tshark, by the packet's size.
type lines struct {
	said host.Output // by the plugin and tshark on standard error

	mu    sync.Mutex
	times map[int][]time.Duration
}

// read starts tshark on a pipe. All processes have this machine's clock.
func (w *world) read(ctx context.Context, l *lines, in *os.File, way *figures.LiveWay) error {
	tshark := host.RoleCommand(ctx, "role-exec", -1, nil, append([]string{"tshark", "-n", "-l", "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"}, way.Tshark...)...)
	tshark.Stdin, tshark.Stderr = in, &l.said
	text, err := tshark.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tshark.Start(); err != nil {
		return fmt.Errorf("start %v: %w", tshark.Args, err)
	}
	w.ended = append(w.ended, func() { host.Kill(tshark) })
	go func() {
		for s := bufio.NewScanner(text); s.Scan(); {
			l.add(s.Text(), time.Now())
		}
	}()
	return nil
}

// add reads a line: the time of a packet, and its size.
func (l *lines) add(line string, now time.Time) {
	epoch, size, _ := strings.Cut(line, "\t")
	at, err1 := parseEpoch(epoch)
	n, err2 := strconv.Atoi(size)
	if errors.Join(err1, err2) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[n] = append(l.times[n], now.Sub(at))
}

// parseEpoch reads seconds since 1970 with nine digits behind the point.
func parseEpoch(s string) (time.Time, error) {
	seconds, nanos, _ := strings.Cut(strings.TrimSpace(s), ".")
	const digits = 9
	if len(nanos) != digits {
		return time.Time{}, errors.New("the time of a packet has no nanoseconds")
	}
	whole, err1 := strconv.ParseInt(seconds, 10, 64)
	rest, err2 := strconv.ParseInt(nanos, 10, 64)
	return time.Unix(whole, rest), errors.Join(err1, err2)
}

// count returns how many packets of a size have lines.
func (l *lines) count(size int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times[size])
}

// measured returns the times of the measured packets in their order, as far as they have lines.
func (l *lines) measured(packets int) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for i := range packets {
		all = append(all, l.times[firstSize+i]...)
	}
	return all
}
