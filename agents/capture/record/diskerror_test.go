package record

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// filler gives a recorder packets of several interfaces. Their time stamps number them.
type filler struct {
	t      *testing.T
	r      *Recorder
	number uint64
	given  []uint64 // packets by interface
}

func newFiller(t *testing.T, dir string, rotate *Rotate) *filler {
	t.Helper()
	cfg := &Config{Dir: dir, Base: "web", SnapLen: snapLen, FileMode: 0o640, Rotate: rotate}
	r := New(cfg, slog.New(slog.DiscardHandler), CreateFile)
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return &filler{t: t, r: r}
}

// add adds an interface, unless the disk refuses.
func (f *filler) add() {
	f.t.Helper()
	name := fmt.Sprintf("eth%d", len(f.given))
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: name, LinkType: pcapng.LinkTypeEthernet})
	if _, err := f.r.Add(desc, InterfaceAccount{Name: name, Index: len(f.given)}); err == nil {
		f.given = append(f.given, 0)
	} else if !f.r.Ended() {
		f.r.fail(err)
	}
}

// write gives a batch of about so many bytes, in several runs.
func (f *filler) write(size int) {
	var b Batch
	for size > 0 {
		var run []byte
		for range 1 + rand.IntN(100) {
			i, n := rand.IntN(len(f.given)), 1+rand.IntN(3000)
			f.number++
			f.given[i]++
			run = pcapng.AppendPacket(run, &pcapng.Packet{Interface: uint32(i), Data: make([]byte, n), Length: 3000, Time: f.number})
		}
		b.Append(run)
		size -= len(run)
	}
	b.recount()
	f.r.Write(&b)
}

// end finishes the capture, and checks that the file is complete and the account exact.
func (f *filler) end() {
	f.t.Helper()
	if err := f.r.Finish(); err != nil {
		f.t.Fatalf("the file has no end: %v", err)
	}
	f.r.Publish()
	a, path := f.r.Account(), f.r.current().path
	if err := f.r.Close(); err != nil {
		f.t.Fatal(err)
	}
	c := readFile(f.t, path)
	if st, err := os.Stat(path); err != nil || st.Size() != a.FileBytes || c.err != nil {
		f.t.Errorf("%d bytes, the account says %d (%v, %v)", st.Size(), a.FileBytes, err, c.err)
	}
	if len(c.ifaces) != len(f.given) || len(c.stats) != len(f.given) {
		f.t.Errorf("%d interfaces were added, %d are described, %d have statistics", len(f.given), len(c.ifaces), len(c.stats))
	}
	last := uint64(0)
	for i, given := range f.given {
		in, there := &a.Interfaces[i], uint64(len(c.packets[i]))
		if !in.AddsUp() || in.Written != there || in.Received != given {
			f.t.Errorf("%s: %d given, %d there, account %+v", in.Name, given, there, in.Counters)
		}
		if st := c.stats[i]; st != nil && (*st.Delivered != there || *st.IfDrop != in.DroppedWriter) {
			f.t.Errorf("%s: %d there, %d dropped, statistics %+v", in.Name, there, in.DroppedWriter, st)
		}
		captured := uint64(0)
		for _, p := range c.packets[i] {
			captured += uint64(len(p.Data))
			last = max(last, p.Time)
		}
		if in.Bytes != captured {
			f.t.Errorf("%s: %d bytes are there, the account says %d", in.Name, captured, in.Bytes)
		}
	}
	if last != a.Written {
		f.t.Errorf("%d packets are in the file, want the first %d", a.Written, last)
	}
}

// apartOf, in the environment, names the test that a child process runs.
const apartOf = "SONDE_CAPTURE_APART"

// apart runs a test in a child process, and reports whether this is the child. A limit on the files of the test process
// would also apply to the log of `go test`.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apartOf) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), apartOf+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}

// limitFiles makes the kernel refuse writes beyond size bytes of a file.
func limitFiles(t *testing.T, size uint64) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
}

// A file cannot grow from any offset on, and its packets may have been pending for long. The file ends with whole
// blocks and its statistics, and every other packet is counted as lost on its interface.
func TestFileThatCannotGrow(t *testing.T) {
	if !apart(t) {
		return
	}
	for range 40 {
		most := uint64(2000 + rand.IntN(1<<(12+rand.IntN(13))))
		batches, settled := 1<<(10+rand.IntN(12)), rand.IntN(3)
		t.Run(fmt.Sprintf("%d bytes, %d at a time, settled %d", most, batches, settled), func(t *testing.T) {
			f := newFiller(t, t.TempDir(), nil)
			f.add()
			limitFiles(t, most)
			for !f.r.Ended() {
				if rand.IntN(20) == 0 && len(f.given) < 5 && most > 10_000 {
					f.add()
					continue
				}
				f.write(1 + rand.IntN(batches))
				if settled > 0 && rand.IntN(settled*5) == 0 {
					f.r.Flush()
				}
			}
			if f.r.end.reason != recording.DiskFull {
				t.Errorf("reason %s (%v)", f.r.end.reason, f.r.end.err)
			}
			f.end()
		})
	}
}

// If a full disk shows only when the last packets are written, the capture is not complete.
func TestFullDiskAtTheEnd(t *testing.T) {
	if !apart(t) {
		return
	}
	f := newFiller(t, t.TempDir(), nil)
	f.add()
	limitFiles(t, 100_000)
	f.write(200_000)
	if f.r.Ended() {
		t.Error("the error is known before the end")
	}
	f.end()
	if f.r.end.reason != recording.DiskFull || f.r.Account().DroppedWriter == 0 {
		t.Errorf("reason %s, account %+v", f.r.end.reason, f.r.Account().Counters)
	}
}

// At every moment the files have all packets that the published account counts.
func TestPublishedPacketsAreInTheFiles(t *testing.T) {
	for name, rotate := range map[string]*Rotate{"a file": nil, "a ring": {MaxBytes: 2 << 20, Files: 3}} {
		t.Run(name, func(t *testing.T) {
			f := newFiller(t, t.TempDir(), rotate)
			f.add()
			f.add()
			f.r.Publish()
			stop := make(chan struct{})
			var reader sync.WaitGroup
			reader.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						isThere(t, f.r)
					}
				}
			})
			for range 160 { // 24 MB: three times the buffer, and twelve files of the ring
				f.write(rand.IntN(300_000))
				f.r.PublishInterface(f.r.interfaces[0])
				switch rand.IntN(10) {
				case 0, 1, 2:
					f.r.Flush()
				case 3:
					f.r.Publish()
				}
			}
			close(stop)
			reader.Wait()
			if err := f.r.Finish(); err != nil {
				t.Fatal(err)
			}
			f.r.Publish()
			isThere(t, f.r)
			if a := f.r.Account(); a.Written+a.Overwritten != f.number || !a.AddsUp() {
				t.Errorf("%d packets, account %+v", f.number, a.Counters)
			}
		})
	}
}

// isThere checks that the newest file, which grows, has all packets of the account, if it is still the newest.
func isThere(t *testing.T, r *Recorder) {
	t.Helper()
	a := r.Account()
	newest := a.Files[len(a.Files)-1]
	b, err := os.ReadFile(filepath.Join(r.cfg.Dir, newest.Name))
	if os.IsNotExist(err) {
		return // it has been removed
	}
	if err != nil || int64(len(b)) < newest.Bytes {
		if next := r.Account(); next.Files[0].Name > newest.Name {
			return
		}
		t.Errorf("%d bytes are there, %d are published (%v)", len(b), newest.Bytes, err)
		return
	}
	packets := uint64(0)
	whole, err := pcapng.Walk(bytes.NewReader(b[:newest.Bytes]), func(g pcapng.BlockInfo) {
		if g.Packet {
			packets++
		}
	})
	if err != nil || whole != newest.Bytes || len(a.Files) == 1 && packets != a.Written {
		t.Errorf("%d of %d bytes are whole blocks and hold %d packets, %d are published (%v)", whole, newest.Bytes, packets, a.Written, err)
	}
}
