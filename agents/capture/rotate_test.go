package capture

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// bound watches a folder and reports capture files that exceed the limits.
type bound struct {
	most, each int64
	files      int
	stop       chan struct{}
	done       sync.WaitGroup
	checks     int
}

func watchBound(t *testing.T, dir string, most, each int64, files int) *bound {
	t.Helper()
	b := &bound{most: most, each: each, files: files, stop: make(chan struct{})}
	b.done.Go(func() {
		for {
			b.check(t, dir)
			select {
			case <-b.stop:
				return
			case <-time.After(time.Millisecond): // leaves CPU time to the capture
			}
		}
	})
	return b
}

// check reads the sizes newest first: if the oldest file still exists at the end, all of them existed at the same time.
func (b *bound) check(t *testing.T, dir string) {
	t.Helper()
	b.checks++
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
		return
	}
	var sum int64
	found := 0
	for _, e := range slices.Backward(entries) {
		if !strings.HasSuffix(e.Name(), ".pcapng") {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		found++
		sum += info.Size()
		if info.Size() > b.each {
			t.Errorf("%s has %d bytes, at most %d are allowed", e.Name(), info.Size(), b.each)
		}
	}
	if sum > b.most || found > b.files {
		t.Errorf("%d files of %d bytes, at most %d of %d are allowed", found, sum, b.files, b.most)
	}
}

func (b *bound) end(t *testing.T) {
	t.Helper()
	close(b.stop)
	b.done.Wait()
	t.Logf("checked the sizes %d times", b.checks)
}

// ringFiles returns the files that the account names, oldest first. The folder must have exactly these.
func ringFiles(t *testing.T, res *Result) []string {
	t.Helper()
	dir := filepath.Dir(res.Path)
	there, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(dir + "/.*")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, f := range res.Account.Files {
		named = append(named, filepath.Join(dir, f.Name))
		if st, err := os.Stat(filepath.Join(dir, f.Name)); err != nil || st.Size() != f.Bytes {
			t.Errorf("%s: %v, %v, account says %d bytes", f.Name, st, err, f.Bytes)
		}
	}
	if !slices.Equal(there, named) || len(hidden) > 0 {
		t.Errorf("there are %v and %v, the account names %v", there, hidden, named)
	}
	if len(named) == 0 || named[len(named)-1] != res.Path {
		t.Errorf("the newest is %s, of %v", res.Path, named)
	}
	return named
}

// checkRing checks that the files are complete, each with its own statistics, and agree with the account. It returns
// the numbers on each interface in the order of the files.
func checkRing(t *testing.T, res *Result) map[string][]uint32 {
	t.Helper()
	a := res.Account
	if !a.AddsUp() {
		t.Errorf("%d received, but %d written, %d overwritten and %d dropped", a.Received, a.Written, a.Overwritten, a.Dropped())
	}
	numbers := map[string][]uint32{}
	var delivered, accepted, end uint64
	for _, path := range ringFiles(t, res) {
		f := readFile(t, path)
		if f.err != nil {
			t.Errorf("%s: %v", path, f.err)
		}
		if len(f.stats) != len(f.ifaces) {
			t.Errorf("%s: %d interfaces and %d statistics", path, len(f.ifaces), len(f.stats))
		}
		for i, in := range f.ifaces {
			st := f.stats[i]
			if *st.Delivered != uint64(len(f.packets[i])) || *st.FilterAccept != *st.Delivered+*st.IfDrop || st.Start < end || st.End < st.Start {
				t.Errorf("%s, %s: %d packets, statistics %+v, last file's end %d", path, in.Name, len(f.packets[i]), st, end)
			}
			delivered, accepted = delivered+*st.Delivered, accepted+*st.FilterAccept
			for _, p := range f.packets[i] {
				if n, ok := numberOf(p.Data); ok {
					numbers[in.Name] = append(numbers[in.Name], n)
				}
			}
		}
		for _, st := range f.stats {
			end = max(end, st.End)
		}
	}
	if delivered != a.Written {
		t.Errorf("%d packets in the files, account says %d", delivered, a.Written)
	}
	if accepted > a.Received || a.Overwritten+a.DroppedWriter == 0 && accepted != a.Received {
		t.Errorf("statistics of %d packets in all files, account of %d", accepted, a.Received)
	}
	return numbers
}

// isSuffix checks that the numbers are the last ones before end, without a gap, each once and in order.
func isSuffix(t *testing.T, numbers []uint32, end uint32) {
	t.Helper()
	for i, n := range numbers {
		if want := end - uint32(len(numbers)-i); n != want {
			t.Fatalf("place %d of %d holds number %d, want %d", i, len(numbers), n, want)
		}
	}
}

func TestRingHoldsExactlyTheNewest(t *testing.T) {
	type ring struct {
		rotate record.Rotate
		sent   uint32
		size   int
	}
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			cases := map[string]ring{
				"small packets": {record.Rotate{MaxBytes: record.MinRotateBytes, Files: 3}, 6000, 30},
				"odd numbers":   {record.Rotate{MaxBytes: 77777, Files: 5}, 4000, 333},
			}
			// The rest is about the files, which all backends write with the same code.
			if cand.name == each[0].name {
				cases["large packets"] = ring{record.Rotate{MaxBytes: record.MinRotateBytes, Files: 2}, 1000, 1400}
				cases["many files"] = ring{record.Rotate{MaxBytes: 100000, Files: 16}, 9000, 200}
				cases["never full"] = ring{record.Rotate{MaxBytes: 10 << 20, Files: 4}, 5000, 200}
				cases["full once"] = ring{record.Rotate{MaxBytes: 1 << 20, Files: 4}, 9000, 200}
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					dir := t.TempDir()
					most := tc.rotate.MaxBytes * int64(tc.rotate.Files)
					changed := 0
					cfg := &Config{
						NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Dir: dir, Rotate: &tc.rotate, MaxBytes: most,
						FilesChanged: func() { changed++ },
					}
					r := start(t, cand.engine(), cfg)
					b := watchBound(t, dir, most, tc.rotate.MaxBytes, tc.rotate.Files)
					// All packets fit into the ring in memory: nothing is lost on a busy machine.
					n.blind(t, tc.size).send(0, tc.sent)
					r.until("all packets", func(a record.Account) bool { return a.Received == uint64(tc.sent) })
					r.cancel(nil)
					res := <-r.result
					b.end(t)
					if res.Reason != recording.Stopped || res.Err != nil || res.Account.Dropped() != 0 {
						t.Errorf("reason %s (%v), %d dropped", res.Reason, res.Err, res.Account.Dropped())
					}
					got := checkRing(t, &res)["eth0"]
					isSuffix(t, got, tc.sent)
					a := res.Account
					if a.Written != uint64(len(got)) || a.Written+a.Overwritten != uint64(tc.sent) {
						t.Errorf("%d in the files, %d sent, account %+v", len(got), tc.sent, a.Counters)
					}
					// The ring holds as many packets as it can: each full file has room for less than one packet.
					block := int64(pcapng.PacketLen(tc.size + 42))
					for _, f := range a.Files[:len(a.Files)-1] {
						if f.Bytes+block <= tc.rotate.MaxBytes {
							t.Errorf("%s has %d bytes: one more packet would have fitted", f.Name, f.Bytes)
						}
					}
					if a.Overwritten > 0 && (len(a.Files) != tc.rotate.Files || changed < tc.rotate.Files) {
						t.Errorf("%d files, %d calls of FilesChanged", len(a.Files), changed)
					}
					if first := a.FirstPacket; a.Written > 0 && (first.IsZero() || first.After(a.LastPacket)) {
						t.Errorf("packets from %v to %v", first, a.LastPacket)
					}
					if name != "odd numbers" {
						return // all have the same kinds of blocks
					}
					files := ringFiles(t, &res)
					for _, path := range []string{files[0], files[len(files)-1]} {
						if out := wireshark.Run(t, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-Y", "_ws.malformed"); strings.TrimSpace(out) != "" {
							t.Errorf("tshark finds malformed packets in %s:\n%s", path, out)
						}
						wireshark.Run(t, "capinfos", path)
					}
				})
			}
		})
	}
}

// maxPackets counts all written packets exactly, including overwritten ones, and the ring has the newest of them.
func TestRingWithPacketLimit(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			const most = 12345
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Filters: frames.OnlyDiscard(), Interfaces: []string{"eth0"}, MaxPackets: most,
				Rotate: &record.Rotate{MaxBytes: record.MinRotateBytes, Files: 2}, MaxBytes: 2 * record.MinRotateBytes,
			})
			n.blind(t, 300).send(0, 20000)
			res := <-r.result
			if a := res.Account; res.Reason != recording.PacketLimit || a.Written+a.Overwritten != most || a.Overwritten == 0 {
				t.Errorf("reason %s, account %+v", res.Reason, a.Counters)
			}
			isSuffix(t, checkRing(t, &res)["eth0"], most)
		})
	}
}

// Several interfaces share the ring. One that appears late is in every later file.
func TestRingOfSeveralInterfaces(t *testing.T) {
	t.Parallel()
	const sent = 4 * many    // the second half of them fills the ring
	const atATime = many / 2 // packets that wait in the capture at most: without a CPU for it, it would drop more
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			lo, out := n.senderTo(t, n.target, n.target, "127.0.0.1"), n.senderTo(t, n.target, n.peer, peerIP)
			lo.size, out.size = 200, 200
			// Interfaces take turns by blocks of their rings, so that the files have packets of each.
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Filters: frames.OnlyDiscard(), Rotate: &record.Rotate{MaxBytes: 1 << 20, Files: 4}, MaxBytes: 4 << 20,
			})
			for i := uint32(0); i < sent; i += 100 {
				lo.send(i, i+100)
				out.send(i, i+100)
				r.until("the packets so far", func(a record.Account) bool { return a.Received+atATime >= 2*uint64(i+100) })
				if i == sent/2 {
					n.addMany(t, 1)
					r.until("the late one", func(a record.Account) bool { return len(a.Interfaces) == 3 })
				}
			}
			r.until("all packets", func(a record.Account) bool { return a.Received == 2*sent })
			r.cancel(nil)
			res := <-r.result
			got := checkRing(t, &res)
			for _, name := range []string{"eth0", "lo"} {
				numbers := got[name]
				if len(numbers) == 0 {
					t.Errorf("nothing of %s, only of %v", name, slices.Collect(maps.Keys(got)))
				}
				isSuffix(t, numbers, sent)
			}
			for _, path := range ringFiles(t, &res) {
				if f := readFile(t, path); len(f.ifaces) != 3 {
					t.Errorf("%s describes %d interfaces", path, len(f.ifaces))
				}
			}
		})
	}
}

// A packet larger than a file of the ring is cut, not lost.
func TestRingCutsPacketsLargerThanAFile(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			lo := n.senderTo(t, n.target, n.target, "127.0.0.1")
			lo.size = 60000
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Filters: frames.OnlyDiscard(), Interfaces: []string{"lo"},
				Rotate: &record.Rotate{MaxBytes: record.MinRotateBytes, Files: 2}, MaxBytes: 2 * record.MinRotateBytes,
			})
			lo.send(0, 20)
			r.until("all packets", func(a record.Account) bool { return a.Received == 20 })
			r.cancel(nil)
			res := <-r.result
			isSuffix(t, checkRing(t, &res)["lo"], 20)
			if a := res.Account; a.Dropped() != 0 || a.Truncated != a.Written || a.Written == 0 {
				t.Errorf("account %+v", a.Counters)
			}
		})
	}
}

func TestRingNeedsRoomForItsDescription(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			cfg := &Config{
				NetNS: n.target, Dir: t.TempDir(), Base: "web", Rotate: &record.Rotate{MaxBytes: record.MinRotateBytes, Files: 2},
				Section: pcapng.Section{Comments: []string{strings.Repeat("x", 40000)}},
			}
			if _, err := cand.engine().Open(cfg); err == nil || !strings.Contains(err.Error(), "raise the size of the files") {
				t.Errorf("error %v", err)
			}
			cfg.Section.Comments, cfg.FilterText = nil, strings.Repeat("x", 40000)
			r := start(t, cand.engine(), cfg)
			r.cancel(nil)
			res := <-r.result
			for _, i := range res.Account.Interfaces {
				if !strings.Contains(i.Note, "too small for its description") {
					t.Errorf("%s: note %q", i.Name, i.Note)
				}
			}
		})
	}
}
