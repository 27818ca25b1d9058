package keeper

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	ringBase   = "web-1-qwer"
	ringPacket = 700 // bytes of each packet
)

// ringWriter writes numbered packets to a ring as a probe does, and reports as a probe does.
type ringWriter struct {
	t     *testing.T
	dir   string
	r     *record.Recorder
	iface *record.Interface
	n     uint64 // packets
}

func newRingWriter(t *testing.T, k *running, files int, bytes int64) *ringWriter {
	t.Helper()
	w := &ringWriter{t: t, dir: k.results}
	cfg := &record.Config{
		Dir: k.results, Base: ringBase, FileMode: 0o644, SnapLen: 1 << 18, MaxBytes: bytes * int64(files),
		Rotate: &record.Rotate{MaxBytes: bytes, Files: files}, FilesChanged: func() { w.report(account.StateCapturing) },
	}
	w.r = record.New(cfg, slog.New(slog.DiscardHandler), record.CreateFile)
	if err := w.r.Open(); err != nil {
		t.Fatal(err)
	}
	w.add("eth0")
	w.r.Publish()
	w.report(account.StateCapturing)
	t.Cleanup(func() { _ = w.r.Close() })
	return w
}

func (w *ringWriter) add(name string) {
	w.t.Helper()
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: name, LinkType: pcapng.LinkTypeEthernet})
	iface, err := w.r.Add(desc, record.InterfaceAccount{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	w.iface = iface
}

func (w *ringWriter) report(state account.State) {
	w.t.Helper()
	a := w.r.Account()
	to := account.Account{State: state, Started: time.Now().UTC(), Complete: state == account.StateDone}
	to.Seen, to.Packets, to.Overwritten, to.Bytes = int64(a.Received), int64(a.Written), int64(a.Overwritten), int64(a.Bytes)
	for _, f := range a.Files {
		to.Files = append(to.Files, account.File{Name: f.Name, Bytes: f.Bytes})
	}
	b, err := to.Marshal()
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, ".new"), b, 0o644)
	}
	if err == nil {
		err = os.Rename(filepath.Join(w.dir, ".new"), filepath.Join(w.dir, captureconfig.ProgressFile))
	}
	if err != nil {
		w.t.Error(err)
	}
}

// write writes packets, and pauses after each batch of at most 50.
func (w *ringWriter) write(packets int, pause time.Duration) {
	for packets > 0 {
		batch := min(packets, 50)
		w.writeBatch(batch)
		packets -= batch
		time.Sleep(pause)
	}
}

func (w *ringWriter) writeBatch(packets int) {
	var b record.Batch
	var run []byte
	for range packets {
		w.n++
		data := make([]byte, ringPacket)
		binary.BigEndian.PutUint64(data, w.n)
		before := len(run)
		run = pcapng.AppendPacket(run, &pcapng.Packet{Interface: w.iface.ID, Data: data, Length: ringPacket, Time: w.n})
		b.Count(w.iface.ID, uint64(len(run)-before), w.n, ringPacket, ringPacket)
	}
	b.Append(run)
	w.r.Write(&b)
	w.r.Flush()
	w.r.PublishInterface(w.iface)
}

// finish ends the capture as a probe does.
func (w *ringWriter) finish() {
	w.t.Helper()
	if err := w.r.Finish(); err != nil {
		w.t.Error(err)
	}
	w.r.Publish()
	w.report(account.StateDone)
}

// ringReader reads a ring as the plugin does: it knows where it is, and how many packets it has and lacks.
type ringReader struct {
	t      *testing.T
	k      *running
	newest bool
	file   string
	at     int64
	passed uint64

	resp    *http.Response
	blocks  *bufio.Scanner
	files   []string
	packets uint64
	lacks   uint64
	gaps    int
	until   uint64
}

func (k *running) readRing(t *testing.T, newest bool) *ringReader {
	t.Helper()
	r := &ringReader{t: t, k: k, newest: newest, file: captureconfig.RingFile(ringBase, 1)}
	r.connect()
	return r
}

func (r *ringReader) connect() {
	r.t.Helper()
	resp, err := r.k.client.Live(r.t.Context(), r.k.addr, r.file, keeperapi.LiveQuery{From: r.at, Newest: r.newest, Ring: true, Passed: r.passed})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	r.resp, r.blocks = resp, bufio.NewScanner(resp.Body)
	r.blocks.Buffer(nil, pcapng.MaxBlockLen)
	r.blocks.Split(pcapng.SplitBlocks)
}

// block reads one block, and checks that the packets are in order, and that each gap counts exactly those that are missing.
func (r *ringReader) block() bool {
	r.t.Helper()
	if !r.blocks.Scan() {
		if err := r.blocks.Err(); err != nil {
			r.t.Errorf("the stream breaks off: %v", err)
		}
		return false
	}
	block := r.blocks.Bytes()
	gap, err := pcapng.ParseGap(block)
	if err != nil {
		r.t.Fatal(err)
	}
	if gap == nil {
		r.at += int64(len(block))
		if pcapng.IsPacket(block) {
			r.passed++
			r.packets++
			if n := binary.BigEndian.Uint64(block[pcapng.PacketHeaderLen:]); n != r.passed {
				r.t.Fatalf("packet %d, want %d; %d are counted as missing", n, r.passed, r.lacks)
			}
		}
		return true
	}
	r.passed, r.lacks, r.at = r.passed+gap.Packets, r.lacks+gap.Packets, r.at+int64(gap.Bytes)
	if gap.Packets > 0 {
		r.gaps++
	}
	r.until = max(r.until, gap.Until)
	if gap.File != "" {
		r.file, r.at = gap.File, int64(gap.At)
		r.files = append(r.files, gap.File)
	}
	return true
}

// read reads until so many packets have passed, or the end.
func (r *ringReader) read(passed uint64) {
	r.t.Helper()
	for r.passed < passed {
		if !r.block() {
			r.t.Fatalf("%d packets have passed at the end, want %d", r.passed, passed)
		}
	}
}

// drain reads to the end of the capture.
func (r *ringReader) drain() {
	r.t.Helper()
	for r.block() {
	}
}

// end reads to the end of a capture that has ended, and checks that every packet came or is counted as missing.
func (r *ringReader) end(w *ringWriter) {
	r.t.Helper()
	r.drain()
	if r.passed != w.n || r.packets+r.lacks != w.n {
		r.t.Errorf("at the end there are %d packets, and %d are counted as missing, of %d", r.packets, r.lacks, w.n)
	}
}

// A reader that keeps up gets the packets of all files, each of which is named before its first block.
func TestLiveRing(t *testing.T) {
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 16, 1<<16) // enough for all packets, however slow the machine is
	r := k.readRing(t, false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.write(1300, 10*time.Millisecond) // a file takes 20 ms
		w.finish()
	}()
	r.drain()
	<-ended
	r.end(w)
	if r.lacks > 0 || len(r.files) < 12 {
		t.Errorf("%d packets are missing, of %d files", r.lacks, len(r.files))
	}
	for i, name := range r.files {
		if want := captureconfig.RingFile(ringBase, uint64(i+1)); name != want {
			t.Errorf("file %s, want %s", name, want)
		}
	}
}

// A writer at full speed is not held up by its readers. They miss packets, and get their exact number.
func TestLiveRingAtFullSpeed(t *testing.T) {
	for name, tc := range map[string]struct {
		files   int
		bytes   int64
		packets int
		newest  bool
	}{
		"small files":  {2, 1 << 16, 100_000, false},
		"larger files": {3, 1 << 20, 300_000, false},
		"the newest":   {4, 16 << 20, 400_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			w := newRingWriter(t, k, tc.files, tc.bytes)
			a, b := k.readRing(t, tc.newest), k.readRing(t, false)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				w.write(tc.packets, 0)
				w.finish()
			}()
			a.drain()
			b.drain()
			<-ended
			for _, r := range []*ringReader{a, b} {
				r.end(w)
				t.Logf("%d packets of %d, %d missing in %d gaps, %d files", r.packets, w.n, r.lacks, r.gaps, len(r.files))
			}
			if a.gaps+b.gaps == 0 || a.packets == 0 {
				t.Error("the test was to have gaps, and packets between them")
			}
		})
	}
}

// A reader that stops until its file has gone goes on with the oldest file that there is. The keeper holds no removed file open afterwards.
func TestLiveRingReaderThatStops(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close files that are forgotten
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 3, 1<<18)
	r := k.readRing(t, false)
	w.write(500, 0)
	r.read(10)
	w.write(100_000, 0) // more than the buffers of a connection
	r.read(w.n)
	if r.lacks == 0 || r.gaps == 0 {
		t.Errorf("%d packets are missing in %d gaps", r.lacks, r.gaps)
	}
	t.Logf("%d packets of %d, %d missing in %d gaps", r.packets, w.n, r.lacks, r.gaps)
	await(t, "no removed file is open", func() bool { return len(removedButOpen(t, k.results)) == 0 })
	w.write(10, 0)
	w.finish()
	r.end(w)
}

// removedButOpen returns the removed files of a folder that this process holds open.
func removedButOpen(t *testing.T, dir string) (names []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) && strings.HasSuffix(to, " (deleted)") {
			names = append(names, to)
		}
	}
	return names
}

// A reader whose connection is lost goes on behind its last block, also if the file has gone meanwhile.
func TestLiveRingResumes(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile int
		lacks     bool
	}{"in its file": {20, false}, "in a later file": {150, false}, "without its file": {1000, true}} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			w := newRingWriter(t, k, 3, 1<<16)
			r := k.readRing(t, false)
			w.write(100, 0)
			r.read(95)
			r.resp.Body.Close()
			w.write(tc.meanwhile, 0)
			r.connect()
			r.read(w.n - 5)
			r.resp.Body.Close()
			r.connect()
			w.finish()
			r.end(w)
			if (r.lacks > 0) != tc.lacks {
				t.Errorf("%d packets are missing", r.lacks)
			}
		})
	}
}

// A new reader starts with the oldest file, and gets the number of packets before it. A reader of the newest packets does so, too, unless the ring
// has more than it may be behind.
func TestLiveRingFromTheOldestFile(t *testing.T) {
	for name, tc := range map[string]struct {
		files   int
		bytes   int64
		packets int
		newest  bool
	}{
		"all of the ring":    {3, 1 << 16, 1000, false},
		"a small ring":       {3, 1 << 16, 1000, true},
		"the newest of many": {4, 16 << 20, 150_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			w := newRingWriter(t, k, tc.files, tc.bytes)
			w.write(tc.packets, 0)
			w.r.Publish()
			a := w.r.Account()
			r := k.readRing(t, tc.newest)
			r.read(w.n)
			if wantAll := tc.bytes == 1<<16; wantAll != (r.lacks == a.Overwritten) || r.lacks < a.Overwritten {
				t.Errorf("%d packets are missing, %d were overwritten", r.lacks, a.Overwritten)
			}
			if want := a.Files[0].Name; r.files[0] != want {
				t.Errorf("it starts with %s, want %s", r.files[0], want)
			}
			w.add("eth1") // and its packets go on
			w.write(500, time.Millisecond)
			r.read(w.n)
			w.write(tc.packets, 0) // all files are new
			r.read(w.n)
			w.finish()
			r.end(w)
		})
	}
}

// What was read of a file that was removed meanwhile does not count: the file was emptied at any moment.
func TestReadOfARemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("x"), Length: 1})
	appendTo(t, path, strings.Repeat(string(packet), 3))
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f := &ringFollower{follower: &follower{records: blockRecords, file: file}, buf: make([]byte, len(packet)-1)}
	end := int64(3 * len(packet))
	if length, packets, err := f.read(end); length != len(packet) || packets != 1 || err != nil { // the buffer grows
		t.Errorf("%d bytes with %d packets, %v", length, packets, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if length, _, err := f.read(end); !errors.Is(err, errRemoved) {
		t.Errorf("%d bytes, %v", length, err)
	}
	if left, err := f.leaveOut(end); !errors.Is(err, errRemoved) {
		t.Errorf("%d bytes are left out, %v", left, err)
	}
}

// The interfaces and statistics of skipped files are not lost.
func TestLiveRingSkipsOnlyPackets(t *testing.T) {
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 4, 16<<20)
	w.add("eth1")
	w.write(100_000, 0)
	w.finish()
	resp, err := k.client.Live(t.Context(), k.addr, captureconfig.RingFile(ringBase, 1), keeperapi.LiveQuery{Newest: true, Ring: true})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	blocks := bufio.NewScanner(resp.Body)
	blocks.Buffer(nil, pcapng.MaxBlockLen)
	blocks.Split(pcapng.SplitBlocks)
	sections, interfaces, statistics, skipped := 0, 0, 0, uint64(0)
	var parser pcapng.Parser
	for blocks.Scan() {
		rest := blocks.Bytes()
		if gap, err := pcapng.ParseGap(rest); err != nil {
			t.Fatal(err)
		} else if gap != nil {
			rest, skipped = gap.Others, skipped+gap.Packets
		}
		for len(rest) > 0 {
			n, block, err := pcapng.SplitBlocks(rest, true)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			b, err := parser.Parse(block)
			if err != nil {
				t.Fatal(err)
			}
			switch b.(type) {
			case *pcapng.Section:
				sections++
			case *pcapng.Interface:
				interfaces++
			case *pcapng.Statistics:
				statistics++
			}
			rest = rest[n:]
		}
	}
	files := len(w.r.Account().Files)
	if skipped != w.n || sections != files || interfaces != 2*files || statistics != 2*files {
		t.Errorf("%d packets skipped of %d; %d sections, %d interfaces and %d statistics of %d files", skipped, w.n, sections, interfaces, statistics, files)
	}
}

// A killed probe leaves a part of a block, which is not sent. Once the files are counted, nothing after them is sent.
func TestLiveRingOfAKilledProbe(t *testing.T) {
	for name, counted := range map[string]bool{"silent": false, "counted": true} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			w := newRingWriter(t, k, 3, 1<<16)
			w.write(1000, 0)
			w.r.Publish()
			a := w.r.Account()
			last := filepath.Join(k.results, a.Files[len(a.Files)-1].Name)
			packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: make([]byte, 100), Length: 100})
			appendTo(t, last, string(packet[:50]))
			r := k.readRing(t, false)
			r.read(w.n)
			if counted {
				if _, err := k.client.Recount(t.Context(), k.addr); err != nil {
					t.Fatal(err)
				}
				appendTo(t, last, string(packet[50:]))
			}
			w.report(account.StateDone)
			r.end(w)
		})
	}
}

// The horizon comes behind the packets of all files.
func TestLiveRingHorizon(t *testing.T) {
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 3, 1<<16)
	w.write(150, 0)
	w.r.Publish()
	r := k.readRing(t, false)
	for range 3 {
		w.write(100, 0)
		w.r.Publish()
		write(t, filepath.Join(k.results, captureconfig.HorizonFile), string(captureconfig.AppendHorizon(nil, w.n)))
		for r.until < w.n {
			if !r.block() {
				t.Fatal("the stream ends")
			}
		}
		if r.passed != w.n {
			t.Errorf("the horizon of %d packets is behind %d", w.n, r.passed)
		}
	}
	await(t, "the probe knows that it is followed", func() bool {
		b, err := os.ReadFile(filepath.Join(k.control, captureconfig.FollowFile))
		return err == nil && string(b) == "1"
	})
}

// The first sign of life names a file, however long the account names none. Later ones come while there are no packets.
func TestLiveRingHeartbeats(t *testing.T) {
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 3, 1<<16)
	quiet := k.readRing(t, false)
	if !quiet.block() { // it has a file before the account names none
		t.Fatal("the stream ends")
	}
	k.put(t, `{"v":1,"state":"capturing"}`)
	waiting := k.readRing(t, false)
	named := make(chan []string)
	go func() {
		waiting.block()
		named <- waiting.files
	}()
	for began := time.Now(); time.Since(began) < keeperapi.HeartbeatInterval/2; { // to the first heartbeat: the file's blocks come at once
		if !quiet.block() {
			t.Fatal("the stream ends")
		}
	}
	select {
	case files := <-named:
		t.Errorf("a block comes before a file is named: %v", files)
	case <-time.After(time.Second):
	}
	w.report(account.StateCapturing)
	if files := <-named; len(files) != 1 {
		t.Errorf("the first block names %v", files)
	}
}

// Without the parameter for a ring, as older plugins read it, the answer breaks off when the file is removed. It then is not found.
func TestLiveOfARemovedFile(t *testing.T) {
	k := run(t, clock.RealClock{})
	w := newRingWriter(t, k, 2, 1<<16)
	w.write(10, 0)
	first := captureconfig.RingFile(ringBase, 1)
	resp, err := k.client.Live(t.Context(), k.addr, first, keeperapi.LiveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.write(1000, 0)
	blocks := bufio.NewScanner(resp.Body)
	blocks.Split(pcapng.SplitBlocks)
	for blocks.Scan() {
	}
	if blocks.Err() == nil {
		t.Error("the answer ends as if it were complete")
	}
	if resp, err := k.client.Live(t.Context(), k.addr, first, keeperapi.LiveQuery{}); err == nil {
		resp.Body.Close()
		t.Error("a removed file is found")
	}
}

// What no probe writes must not stop a reader, or make it read for ever.
func TestLiveRingOfForeignFiles(t *testing.T) {
	packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("x"), Length: 1})
	head := pcapng.AppendSection(nil, &pcapng.Section{})
	huge := []byte{1, 0, 0, 0, 0, 0, 0xf0, 0}
	for name, tc := range map[string]struct {
		first, second, account string
		wantFiles              int
		wantErr                bool
	}{
		"no blocks":      {first: string(head) + "this is no block", second: string(head), wantFiles: 2},
		"a huge block":   {first: string(head) + string(huge) + strings.Repeat("x", 1<<20), second: string(head), wantFiles: 2},
		"an empty file":  {first: "", second: string(head) + string(packet), wantFiles: 2},
		"no account":     {first: string(head), second: string(head), account: `{"v":1,"state":"done"}`, wantErr: true},
		"another's name": {first: string(head), second: string(head), account: `{"v":1,"state":"done","files":[{"name":"../x-0000000001.pcapng","bytes":1}]}`, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			for i, content := range []string{tc.first, tc.second} {
				appendTo(t, filepath.Join(k.results, captureconfig.RingFile(ringBase, uint64(i+1))), content)
			}
			if tc.account == "" {
				tc.account = fmt.Sprintf(`{"v":1,"state":"done","files":[{"name":%q,"bytes":0}]}`, captureconfig.RingFile(ringBase, 1))
			}
			k.put(t, tc.account)
			r := &ringReader{t: t, k: k, file: captureconfig.RingFile(ringBase, 1)}
			r.connect()
			for r.blocks.Scan() {
				if gap, err := pcapng.ParseGap(r.blocks.Bytes()); err == nil && gap != nil && gap.File != "" {
					r.files = append(r.files, gap.File)
				}
			}
			if len(r.files) != tc.wantFiles || (r.blocks.Err() != nil) != tc.wantErr {
				t.Errorf("%d files, want %d; error %v", len(r.files), tc.wantFiles, r.blocks.Err())
			}
		})
	}
}
