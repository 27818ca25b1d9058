package capture

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/privileged"
)

// keep returns a disk floor of so many bytes.
func keep(bytes uint64) func(uint64) uint64 { return func(uint64) uint64 { return bytes } }

// mountTmpfs mounts a tmpfs with options and returns its folder.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	privileged.Need(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func mountSmallTmpfs(t *testing.T) string {
	t.Helper()
	return mountTmpfs(t, "size=8m")
}

// mountExt4 mounts an ext4 of 64 MiB on a loop device, like a node's disk.
func mountExt4(t *testing.T) string {
	t.Helper()
	privileged.Need(t)
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// checkFromTheFirst checks that the numbers begin with 0, each once and in order. At most lost numbers may be missing.
func checkFromTheFirst(t *testing.T, numbers []uint32, lost uint64) {
	t.Helper()
	next, missing := uint32(0), uint64(0)
	for _, n := range numbers {
		if n < next {
			t.Fatalf("number %d, want at least %d", n, next)
		}
		missing, next = missing+uint64(n-next), n+1
	}
	if missing > lost {
		t.Errorf("%d packets are missing before the last one, the ring lost %d", missing, lost)
	}
}

func TestFloorIsKeptUnderFlood(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			cases := map[string]struct {
				mount func(*testing.T) string
				floor uint64
				// captures on the same disk at once
				captures int
				rotate   *record.Rotate
			}{
				"tmpfs":                   {mountSmallTmpfs, 2 << 20, 1, nil},
				"ext4":                    {mountExt4, 40 << 20, 1, nil},
				"ext4, several":           {mountExt4, 34 << 20, 4, nil},
				"ext4, ring not yet full": {mountExt4, 40 << 20, 2, &record.Rotate{MaxBytes: 4 << 20, Files: 8}},
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					dir := tc.mount(t)
					n := newTestNet(t)
					var all []*running
					for i := range tc.captures {
						own := filepath.Join(dir, string(rune('a'+i)))
						if err := os.Mkdir(own, 0o700); err != nil {
							t.Fatal(err)
						}
						cfg := &Config{NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Dir: own, DiskFloor: keep(tc.floor), Rotate: tc.rotate}
						if tc.rotate != nil {
							cfg.MaxBytes = tc.rotate.MaxBytes * int64(tc.rotate.Files)
						}
						all = append(all, start(t, cand.engine(), cfg))
					}
					s := n.blind(t, 1400)
					lowest := uint64(1 << 62)
					sent := uint32(0)
					for left := len(all); left > 0; {
						s.send(sent, sent+500)
						sent += 500
						_, free, err := disk.Space(dir)
						if err != nil {
							t.Fatal(err)
						}
						lowest = min(lowest, free)
						left = 0
						for _, r := range all {
							if len(r.result) == 0 {
								left++
							}
						}
					}
					_, free, err := disk.Space(dir)
					if err != nil {
						t.Fatal(err)
					}
					if lowest = min(lowest, free); lowest < tc.floor {
						t.Errorf("%d bytes were free, want at least %d", lowest, tc.floor)
					}
					if free > tc.floor+disk.Slack+1<<20 {
						t.Errorf("%d bytes are free, the floor is %d: ended too early", free, tc.floor)
					}
					for _, r := range all {
						res := <-r.result
						if !disk.IsFull(res.Err) || res.Reason != recording.DiskFull || !strings.Contains(res.Err.Error(), "--disk-floor") {
							t.Errorf("reason %s, error %v", res.Reason, res.Err)
						}
						if a := res.Account; a.DroppedWriter == 0 || a.Overwritten != 0 {
							t.Errorf("account %+v", a.Counters)
						}
						checkFromTheFirst(t, checkRing(t, &res)["eth0"], res.Account.DroppedRing)
					}
				})
			}
		})
	}
}

// Other processes may fill the disk to its last block between two writes. The file still reports its losses.
func TestDiskFilledByOthers(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			dir := mountSmallTmpfs(t)
			r := start(t, cand.engine(), &Config{NetNS: n.target, Filters: frames.OnlyDiscard(), Dir: dir, DiskFloor: keep(1 << 20)})
			s := n.blind(t, 60)
			sent := uint32(0)
			// Send until the last block of the file has no room for two statistics.
			count := uint64(0)
			statistics := pcapng.Statistics{Received: &count, IfDrop: &count, FilterAccept: &count, OSDrop: &count, Delivered: &count, Time: 1, Start: 1, End: 1}
			statisticsLen := len(pcapng.AppendStatistics(nil, &statistics))
			full := func(bytes int64) bool { free := -bytes & 4095; return free > 0 && free < int64(2*statisticsLen) }
			for block := int64(pcapng.PacketLen(60 + 42)); !full(r.Account().FileBytes); {
				n := int64(1)
				for !full(r.Account().FileBytes + n*block) {
					n++
				}
				s.send(sent, sent+uint32(n))
				sent += uint32(n)
				r.until("them", func(a record.Account) bool { return a.Written == uint64(sent) })
			}
			if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 16<<20), 0o600); err == nil {
				t.Fatal("the disk is not full")
			}
			s.send(sent, sent+100)
			res := r.wait()
			if res.Reason != recording.DiskFull || !disk.IsFull(res.Err) {
				t.Errorf("reason %s, error %v", res.Reason, res.Err)
			}
			f := readFile(t, res.Path)
			if len(f.stats) != len(f.ifaces) {
				t.Fatalf("%d interfaces, %d statistics", len(f.ifaces), len(f.stats))
			}
			i := f.iface(t, "eth0")
			if a := res.Account; !a.AddsUp() || a.DroppedWriter == 0 || *f.stats[i].IfDrop != a.DroppedWriter || *f.stats[i].Delivered != a.Written {
				t.Errorf("account %+v, statistics %d dropped, %d delivered", a.Counters, *f.stats[i].IfDrop, *f.stats[i].Delivered)
			}
			exactly(t, f.numbers(t, "eth0"), 0, uint32(res.Account.Written))
		})
	}
}

func TestOpenBelowTheFloor(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			n := newTestNet(t)
			dir := mountTmpfs(t, "size=1m")
			cfg := &Config{NetNS: n.target, Dir: dir, Base: "web", DiskFloor: keep(1 << 20)}
			_, err := cand.engine().Open(cfg)
			if !disk.IsFull(err) || !strings.Contains(err.Error(), "1.0 MiB of 1.0 MiB free, and captures leave 1.0 MiB") || strings.Contains(err.Error(), "capture less") {
				t.Errorf("error %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("it left %v, %v", left, err)
			}
			cfg.Dir = mountTmpfs(t, "size=0") // has neither a size nor free space
			c, err := cand.engine().Open(cfg)
			if err != nil {
				t.Fatalf("a file system without a size: %v", err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A ring whose disk gets full, or that cannot create its next file, ends with complete files.
func TestRingOnAFullDisk(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			refused := errors.New("no more files")
			cases := map[string]struct {
				engine *engine
				dir    string
				want   recording.Reason
			}{
				"no space":   {&engine{candidates: []candidate{cand}, create: record.CreateFile}, smallDisk(t), recording.DiskFull},
				"no file":    {&engine{candidates: []candidate{cand}, create: thenRefuse(3, refused)}, t.TempDir(), recording.Error},
				"no inode":   {&engine{candidates: []candidate{cand}, create: thenRefuse(2, unix.ENOSPC)}, t.TempDir(), recording.DiskFull},
				"read error": {&engine{candidates: []candidate{cand}, create: thenBroken(3, 30000)}, t.TempDir(), recording.Error},
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					r := start(t, tc.engine, &Config{
						NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Dir: tc.dir,
						Rotate: &record.Rotate{MaxBytes: 200000, Files: 4}, MaxBytes: 800000,
					})
					n.blind(t, 1000).send(0, 3000)
					res := <-r.result
					if res.Reason != tc.want || res.Err == nil {
						t.Errorf("reason %s (%v), want %s", res.Reason, res.Err, tc.want)
					}
					if a := res.Account; a.DroppedWriter == 0 || a.Written == 0 {
						t.Errorf("account %+v", a.Counters)
					}
					numbers := checkRing(t, &res)["eth0"]
					isSuffix(t, numbers, uint32(res.Account.Written+res.Account.Overwritten))
				})
			}
		})
	}
}

// thenRefuse creates so many files, and then returns err.
func thenRefuse(files int, err error) record.CreateFunc {
	return func(path string, mode os.FileMode) (record.Output, error) {
		if files--; files < 0 {
			return nil, err
		}
		return record.CreateFile(path, mode)
	}
}

// thenBroken creates so many files, and then one that breaks after so many bytes.
func thenBroken(files int, bytes uint64) record.CreateFunc {
	return func(path string, mode os.FileMode) (record.Output, error) {
		out, err := record.CreateFile(path, mode)
		if files--; files >= 0 || err != nil {
			return out, err
		}
		return &mendedOutput{brokenOutput{Output: out, left: bytes, err: unix.EIO}}, nil
	}
}

// mendedOutput fails only once.
type mendedOutput struct{ brokenOutput }

func (m *mendedOutput) Writev(runs [][]byte) (uint64, error) {
	n, err := m.brokenOutput.Writev(runs)
	if err != nil {
		m.left = 1 << 62
	}
	return n, err
}

// With several interfaces, some of them late, maxPackets is exact, and maxBytes is never exceeded.
func TestLimitsOverSeveralInterfaces(t *testing.T) {
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel() // beside floods of this test alone
			n := newTestNet(t)
			cases := map[string]Config{
				"packets": {MaxPackets: 12345},
				"bytes":   {MaxBytes: 1234567},
				"both":    {MaxPackets: 3000, MaxBytes: 10 << 20},
			}
			for name, cfg := range cases {
				t.Run(name, func(t *testing.T) {
					lo, out := n.senderTo(t, n.target, n.target, "127.0.0.1"), n.blind(t, 300)
					lo.recv = nil
					cfg.NetNS, cfg.Filters, cfg.Dir = n.target, frames.OnlyDiscard(), t.TempDir()
					r := start(t, cand.engine(), &cfg)
					b := watchBound(t, cfg.Dir, max(cfg.MaxBytes, 1<<20*min(1, cfg.MaxPackets)*100), 1<<40, 1)
					late := false
					for sent := uint32(0); len(r.result) == 0; sent += 100 {
						lo.send(sent, sent+100)
						out.send(sent, sent+100)
						if !late && sent >= 1000 {
							late = true
							n.addMany(t, 1)
						}
					}
					res := <-r.result
					b.end(t)
					n.removeMany(t, 1)
					checkResult(t, &res)
					a := res.Account
					if cfg.MaxPackets > 0 && (a.Written != uint64(cfg.MaxPackets) || res.Reason != recording.PacketLimit) {
						t.Errorf("reason %s, %d packets, want exactly %d", res.Reason, a.Written, cfg.MaxPackets)
					}
					if cfg.MaxPackets == 0 && (a.FileBytes+int64(pcapng.PacketLen(342)) <= cfg.MaxBytes || res.Reason != recording.ByteLimit) {
						t.Errorf("reason %s, %d bytes of %d", res.Reason, a.FileBytes, cfg.MaxBytes)
					}
				})
			}
		})
	}
}
