package capture

import (
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// gate is an output that lets writes pass only while it is open.
type gate struct {
	record.Output
	closed  atomic.Bool
	blocked atomic.Bool
	open    chan struct{}
}

func (g *gate) Writev(runs [][]byte) (uint64, error) {
	if g.closed.Load() {
		g.blocked.Store(true)
		<-g.open
	}
	return g.Output.Writev(runs)
}

// slowEngine writes through a gate.
func slowEngine(cand candidate, g *gate) Engine {
	g.open = make(chan struct{})
	return &engine{candidates: []candidate{cand}, create: func(path string, mode os.FileMode) (record.Output, error) {
		var err error
		g.Output, err = record.CreateFile(path, mode)
		return g, err
	}}
}

func TestOverloadIsCountedExactly(t *testing.T) {
	type engine struct {
		candidate
		processes *backend.Processes
	}
	engines := map[string]engine{preferred().name + " with processes": {preferred(), &backend.Processes{}}}
	for _, cand := range each {
		engines[cand.name] = engine{cand, nil}
	}
	for name, e := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			s := n.blind(t, 1000)
			var g gate
			r := start(t, slowEngine(e.candidate, &g), &Config{
				NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), RingBytes: 256 << 10, Processes: e.processes,
			})
			s.send(0, 50)
			g.closed.Store(true)
			sent := uint32(50)
			for !g.blocked.Load() { // until the writer blocks
				s.send(sent, sent+50)
				sent += 50
			}
			s.send(sent, sent+2000)
			sent += 2000
			g.closed.Store(false)
			close(g.open)
			r.until("all packets to be counted, so that the ring is empty", func(a record.Account) bool {
				return a.DroppedRing > 0 && a.Written+a.DroppedRing == uint64(sent)
			})
			s.send(sent, sent+100) // afterwards no packet is lost
			sent += 100
			res := r.stop()
			a := res.Account
			t.Logf("%d sent, %d written, %d dropped, frozen %d times", sent, a.Written, a.DroppedRing, a.Interfaces[0].Frozen)
			if a.Written+a.DroppedRing != uint64(sent) || a.Received != uint64(sent) {
				t.Errorf("%d sent, account %+v", sent, a.Counters)
			}
			if a.DroppedRing < uint64(sent)/10 {
				t.Errorf("only %d of %d lost: the test did not overload", a.DroppedRing, sent)
			}
			found := readFile(t, res.Path).numbers(t, "eth0")
			for num, times := range found {
				if times != 1 || num >= sent {
					t.Errorf("packet %d is there %d times", num, times)
				}
			}
			exactly(t, tail(found, sent-100), sent-100, sent)
			if res.Reason != recording.Stopped {
				t.Errorf("reason %s", res.Reason)
			}
		})
	}
}

func tail(found map[uint32]int, from uint32) map[uint32]int {
	out := map[uint32]int{}
	for n, times := range found {
		if n >= from {
			out[n] = times
		}
	}
	return out
}

func TestLimitsUnderFlood(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			cases := map[string]struct {
				cfg  Config
				size int
				want recording.Reason
			}{
				"one packet":     {Config{MaxPackets: 1}, 100, recording.PacketLimit},
				"many packets":   {Config{MaxPackets: 12345}, 100, recording.PacketLimit},
				"few bytes":      {Config{MaxBytes: 1000}, 100, recording.ByteLimit},
				"many bytes":     {Config{MaxBytes: 1234567}, 100, recording.ByteLimit},
				"large packets":  {Config{MaxBytes: 1234567}, 1400, recording.ByteLimit},
				"packets first":  {Config{MaxBytes: 1 << 30, MaxPackets: 100}, 100, recording.PacketLimit},
				"bytes first":    {Config{MaxBytes: 100000, MaxPackets: 1e9}, 100, recording.ByteLimit},
				"below a packet": {Config{MaxBytes: 420}, 1400, recording.ByteLimit},
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					cfg := tc.cfg
					cfg.NetNS, cfg.Interfaces, cfg.Filters = n.target, []string{"eth0"}, frames.OnlyDiscard()
					r := start(t, cand.engine(), &cfg)
					s := n.blind(t, tc.size)
					var res Result
					for sent, done := uint32(0), false; !done; sent += 100 {
						select {
						case res = <-r.result:
							done = true
						default:
							s.send(sent, sent+100)
						}
					}
					checkResult(t, &res)
					a := res.Account
					if res.Reason != tc.want || !res.Reason.Complete() || res.Err != nil {
						t.Errorf("reason %s (%v), want %s", res.Reason, res.Err, tc.want)
					}
					if tc.want == recording.PacketLimit && a.Written != uint64(tc.cfg.MaxPackets) {
						t.Errorf("%d packets, want exactly %d", a.Written, tc.cfg.MaxPackets)
					}
					if limit := tc.cfg.MaxBytes; limit > 0 && a.FileBytes > limit {
						t.Errorf("%d bytes, at most %d are allowed", a.FileBytes, limit)
					}
					if limit := tc.cfg.MaxBytes; tc.want == recording.ByteLimit && a.FileBytes+int64(pcapng.PacketLen(tc.size+42)) <= limit {
						t.Errorf("%d bytes: one more packet would have fitted into %d", a.FileBytes, limit)
					}
					if a.Written > 0 {
						found := readFile(t, res.Path).numbers(t, "eth0")
						exactly(t, found, 0, uint32(a.Written))
					}
				})
			}
		})
	}
}

// smallDisk mounts a file system that is soon full.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestFullDiskLeavesAWholeFile(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Dir: smallDisk(t)})
			s := n.blind(t, 1000)
			s.send(0, 3000)
			res := r.wait()
			if res.Reason != recording.DiskFull || res.Reason.Complete() || !disk.IsFull(res.Err) {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
			a := res.Account
			if a.DroppedWriter == 0 || a.Written == 0 || a.Received > 3000 {
				t.Errorf("account %+v", a.Counters)
			}
			f := readFile(t, res.Path)
			exactly(t, f.numbers(t, "eth0"), 0, uint32(a.Written))
			if f.stats[0] == nil || *f.stats[0].IfDrop != a.DroppedWriter {
				t.Errorf("the file does not report its losses: %+v", f.stats[0])
			}
			wireshark.Run(t, "capinfos", res.Path)
		})
	}
}

// brokenOutput writes a number of bytes in total, the last write partly, and fails from then on.
type brokenOutput struct {
	record.Output
	left uint64
	err  error
}

func (b *brokenOutput) Writev(runs [][]byte) (uint64, error) {
	var done uint64
	for _, r := range runs {
		n := min(uint64(len(r)), b.left)
		w, err := b.Output.Writev([][]byte{r[:n]})
		done += w
		b.left -= n
		if err != nil {
			return done, err
		}
		if int(n) < len(r) {
			return done, b.err
		}
	}
	return done, nil
}

func TestWriteErrorsAnywhere(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			for _, left := range []uint64{700, 1000, 2000, 5003, 20001} {
				e := &engine{candidates: []candidate{cand}, create: func(path string, mode os.FileMode) (record.Output, error) {
					out, err := record.CreateFile(path, mode)
					return &brokenOutput{Output: out, left: left, err: unix.EIO}, err
				}}
				r := start(t, e, &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard()})
				n.blind(t, 200).send(0, 300)
				r.cancel(nil)
				res := <-r.result
				if res.Reason != recording.Error || res.Err == nil {
					t.Errorf("%d bytes: reason %s, error %v", left, res.Reason, res.Err)
				}
				a := res.Account
				f := readFile(t, res.Path)
				if f.err != nil || a.DroppedWriter == 0 || a.Written+a.DroppedWriter != a.Received || len(f.packets[0]) != int(a.Written) {
					t.Errorf("%d bytes: file %v with %d packets, account %+v", left, f.err, len(f.packets[0]), a.Counters)
				}
				if st, err := os.Stat(res.Path); err != nil || st.Size() != a.FileBytes {
					t.Errorf("%d bytes: size %v, account %d", left, st, a.FileBytes)
				}
			}
		})
	}
}

func TestFirstWriteFails(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			e := &engine{candidates: []candidate{cand}, create: func(path string, mode os.FileMode) (record.Output, error) {
				out, err := record.CreateFile(path, mode)
				return &brokenOutput{Output: out, err: unix.ENOSPC}, err
			}}
			dir := t.TempDir()
			if _, err := e.Open(&Config{NetNS: n.target, Dir: dir, Base: "x"}); !disk.IsFull(err) {
				t.Errorf("error %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("a capture that could not begin left %v, %v", left, err)
			}
		})
	}
}
