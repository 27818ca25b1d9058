package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/test/wireshark"
)

// frameOf is an Ethernet frame with an IPv4 packet of an experimental protocol, so that no dissector complains.
func frameOf(n int) []byte {
	b := append(bytes.Repeat([]byte{2}, 12), 8, 0)
	b = append(b, 0x45, 0, 0, 24, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	return append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// stream makes a capture whose packets have the given times on interfaces 0 and 1 in turn.
func stream(name string, times ...uint64) []byte {
	b := AppendSection(nil, &Section{OS: "Linux", Application: "sonde", Comments: []string{"of " + name, "filter ip"}})
	for i := range 2 {
		b = AppendInterface(b, &Interface{Name: fmt.Sprintf("%s%d", name, i), Description: "shop/" + name, Filter: "ip", LinkType: LinkTypeEthernet, SnapLen: 96})
	}
	for i, t := range times {
		data := frameOf(i)
		b = AppendPacket(b, &Packet{Interface: uint32(i % 2), Time: t, Data: data, Length: uint32(len(data)), Flags: Inbound})
	}
	for i := range uint32(2) {
		b = AppendStatistics(b, &Statistics{Interface: i, Time: 1, Start: 1, End: 2, Received: new(uint64(len(times))), IfDrop: new(uint64(3))})
	}
	return b
}

func merge(t *testing.T, opts MergeOptions, streams ...[]byte) ([]byte, MergeResult) {
	t.Helper()
	var sources []io.Reader
	for _, s := range streams {
		sources = append(sources, bytes.NewReader(s))
	}
	var out bytes.Buffer
	res, err := Merge(&out, sources, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), res
}

func TestMergeKeepsWhatIsKnown(t *testing.T) {
	merged, res := merge(t, MergeOptions{}, stream("a", 30, 10), stream("b", 20, 40))
	if diff := cmp.Diff(MergeResult{Packets: 4}, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	blocks, err := readAll(bytes.NewReader(merged))
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	type packet struct {
		Time  uint64
		Iface string
		Flags Flags
	}
	var (
		comments []string
		packets  []packet
		ifaces   []*Interface
		stats    []string
	)
	for _, b := range blocks {
		switch b := b.(type) {
		case *Section:
			comments = b.Comments
		case *Interface:
			ifaces = append(ifaces, b)
		case *Packet:
			packets = append(packets, packet{b.Time, ifaces[b.Interface].Name, b.Flags})
		case *Statistics:
			stats = append(stats, fmt.Sprintf("%s %d dropped", ifaces[b.Interface].Name, *b.IfDrop))
		}
	}
	want := []packet{{10, "a1", Inbound}, {20, "b0", Inbound}, {30, "a0", Inbound}, {40, "b1", Inbound}}
	if diff := cmp.Diff(want, packets); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"of a\nfilter ip", "of b\nfilter ip"}, comments); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a0 3 dropped", "a1 3 dropped", "b0 3 dropped", "b1 3 dropped"}, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
	if last := ifaces[3]; last.Description != "shop/b" || last.Filter != "ip" || last.SnapLen != 96 {
		t.Errorf("interface %+v", last)
	}
}

// jumbled has packets that are out of order by up to spread positions of a microsecond each.
func jumbled(n, spread int) []uint64 {
	times := make([]uint64, n)
	for i := range times {
		times[i] = uint64(1_700_000_000_000_000_000) + uint64((i^(spread-1))*1000)
	}
	return times
}

func TestMergeOrdersWithinItsBounds(t *testing.T) {
	cases := map[string]struct {
		opts     MergeOptions
		wantLate bool
	}{
		"default":                  {MergeOptions{}, false},
		"window too short":         {MergeOptions{Window: 10 * time.Microsecond}, true},
		"window just enough":       {MergeOptions{Window: 64 * time.Microsecond}, false},
		"too few packets":          {MergeOptions{MaxPackets: 8}, true},
		"just enough packets":      {MergeOptions{MaxPackets: 64}, false},
		"too few bytes":            {MergeOptions{MaxBuffered: 8 * 38}, true},
		"one packet, never blocks": {MergeOptions{MaxPackets: 1}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			merged, res := merge(t, tc.opts, stream("a", jumbled(4096, 64)...), stream("b", jumbled(4096, 32)...))
			if (res.Late > 0) != tc.wantLate {
				t.Errorf("%d packets late", res.Late)
			}
			blocks, _ := readAll(bytes.NewReader(merged))
			packets, late := 0, false
			var last uint64
			for _, b := range blocks {
				if p, ok := b.(*Packet); ok {
					late = late || p.Time < last
					last = p.Time
					packets++
				}
			}
			if packets != 8192 || late != tc.wantLate {
				t.Errorf("%d packets, out of order: %v", packets, late)
			}
		})
	}
}

// file is one file of a ring, with packets at the given times.
func file(ifaces int, dropped uint64, times ...uint64) []byte {
	b := AppendSection(nil, &Section{Application: "sonde", Comments: []string{"requester: alice"}})
	for i := range ifaces {
		b = AppendInterface(b, &Interface{Name: fmt.Sprintf("eth%d", i), LinkType: LinkTypeEthernet})
	}
	for _, at := range times {
		b = AppendPacket(b, &Packet{Time: at, Data: []byte{1}, Length: 1})
	}
	written := uint64(len(times))
	received := written + dropped
	return AppendStatistics(b, &Statistics{
		Time: times[len(times)-1], Start: times[0], End: times[len(times)-1],
		Received: &received, IfDrop: &dropped, FilterAccept: &received, Delivered: &written,
	})
}

// The files of a ring are one source: an interface appears once with the sum of its statistics, also one that came later.
func TestMergeOfASequence(t *testing.T) {
	ring := Sequence(bytes.NewReader(file(1, 3, 10, 20)), bytes.NewReader(file(2, 0, 30, 40)), bytes.NewReader(file(2, 2, 50)))
	var out bytes.Buffer
	res, err := Merge(&out, []io.Reader{ring, bytes.NewReader(file(1, 0, 25)), Sequence()}, MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(MergeResult{Packets: 6}, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	blocks, err := readAll(&out)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var names, stats []string
	var times []uint64
	for _, b := range blocks {
		switch b := b.(type) {
		case *Interface:
			names = append(names, b.Name)
			if len(b.Comments) > 0 {
				t.Errorf("%s has comments %q, which repeat the section's", b.Name, b.Comments)
			}
		case *Packet:
			times = append(times, b.Time)
		case *Statistics:
			stats = append(stats, fmt.Sprintf("%d: %d to %d, %d received, %d dropped, %d in the file", b.Interface, b.Start, b.End, *b.Received, *b.IfDrop, *b.Delivered))
		}
	}
	if diff := cmp.Diff([]string{"eth0", "eth1", "eth0"}, names); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{10, 20, 25, 30, 40, 50}, times); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	want := []string{"0: 10 to 50, 10 received, 5 dropped, 5 in the file", "2: 25 to 25, 1 received, 0 dropped, 1 in the file"}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
}

// A truncated file of a sequence does not hide later files.
func TestMergeOfASequenceWithACutFile(t *testing.T) {
	first := file(1, 0, 10, 20)
	ring := Sequence(bytes.NewReader(first[:len(first)-10]), bytes.NewReader(file(1, 0, 30)))
	var out bytes.Buffer
	res, err := Merge(&out, []io.Reader{ring}, MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(MergeResult{Packets: 3, Truncated: []int{0}}, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestMergeOfIncompleteSources(t *testing.T) {
	whole := stream("a", 10, 20)
	second := append(bytes.Clone(whole), stream("later", 30)...)
	merged, res := merge(t, MergeOptions{}, whole[:len(whole)-100], nil, AppendSection(nil, &Section{}), second)
	if diff := cmp.Diff(MergeResult{Packets: 5, Truncated: []int{0}}, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	blocks, err := readAll(bytes.NewReader(merged))
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	found := false
	for _, b := range blocks {
		if i, ok := b.(*Interface); ok && i.Name == "later0" {
			found = cmp.Equal(i.Comments, []string{"of later", "filter ip"})
		}
	}
	if !found {
		t.Error("the comments of a second section are lost")
	}
}

func TestMergeErrors(t *testing.T) {
	good := stream("a", 1)
	cases := map[string]struct {
		source io.Reader
		want   error
	}{
		"no pcapng":           {strings.NewReader("this is no capture at all"), ErrFormat},
		"damaged in mid-file": {bytes.NewReader(append(bytes.Clone(good), "garbage garbage"...)), ErrFormat},
		"read error":          {io.MultiReader(bytes.NewReader(good), iotest.ErrReader(io.ErrClosedPipe)), io.ErrClosedPipe},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Merge(io.Discard, []io.Reader{bytes.NewReader(good), tc.source}, MergeOptions{})
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "capture 1") {
				t.Errorf("error %v, want %v of capture 1", err, tc.want)
			}
		})
	}
}

func TestWiresharkReadsTheMerge(t *testing.T) {
	merged, _ := merge(t, MergeOptions{Application: "kubectl-sonde"}, stream("a", jumbled(2000, 64)...), stream("b", jumbled(1000, 8)...))
	path := filepath.Join(t.TempDir(), "m.pcapng")
	if err := os.WriteFile(path, merged, 0o600); err != nil {
		t.Fatal(err)
	}
	info := wireshark.Run(t, "capinfos", "-M", path)
	for _, want := range []string{
		"Number of packets:   3000", "Strict time order:   True", "File timestamp precision:  nanoseconds (9)",
		"Capture application: kubectl-sonde", "Capture oper-sys:    Linux", "Number of interfaces in file: 4",
		"Name = b1", "Description = shop/a", "Filter string = ip", "Number of packets = 1000", "of a",
	} {
		if !strings.Contains(info, want) {
			t.Errorf("capinfos does not say %q:\n%s", want, info)
		}
	}
	out := wireshark.Run(t, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction")
	if got := strings.Count(out, "b0\t0x00000001\n"); got != 500 {
		t.Errorf("tshark sees %d inbound packets on b0, want 500", got)
	}
}

// Wireshark shows the names of a merged file instead of addresses, and the process of a packet. Its programs find nothing wrong with the
// file, and copy the process.
func TestNamesInWireshark(t *testing.T) {
	process := &Process{PID: 4711, InnerPID: 7, UID: 101, Comm: "nginx", Container: "web"}
	source := AppendSection(nil, &Section{Comments: []string{"Pod shop/web-7d9"}})
	source = AppendInterface(source, &Interface{Name: "eth0", LinkType: LinkTypeRaw, Comments: []string{"of a Pod"}})
	source = AppendPacket(source, &Packet{
		Time: 1, Data: unhex(t, "45000014 00000000 40fd0000 0a000001 0a000002"), Length: 20, Comments: []string{process.String()}, Process: process,
	})
	source = AppendStatistics(source, &Statistics{Time: 2, Received: new(uint64(1)), IfDrop: new(uint64(0)), Delivered: new(uint64(1))})
	var merged bytes.Buffer
	names := &Names{Records: []Name{{netip.MustParseAddr("10.0.0.1"), "shop/web-7d9"}, {netip.MustParseAddr("10.0.0.2"), "web.shop.svc"}}}
	if _, err := Merge(&merged, []io.Reader{bytes.NewReader(source)}, MergeOptions{Names: names}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "names.pcapng")
	if err := os.WriteFile(path, merged.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	edited, twice := filepath.Join(t.TempDir(), "edited.pcapng"), filepath.Join(t.TempDir(), "twice.pcapng")
	wireshark.Run(t, "editcap", path, edited)
	wireshark.Run(t, "mergecap", "-w", twice, path, path)
	const line = "process: nginx, pid 4711, uid 101, container web\n"
	for file, want := range map[string]string{path: line, edited: line, twice: line + line} {
		wireshark.Run(t, "capinfos", file)
		if got := wireshark.Run(t, "tshark", "-r", file, "-T", "fields", "-e", "frame.comment"); got != want {
			t.Errorf("tshark shows %q of %s, want %q", got, filepath.Base(file), want)
		}
	}
	// editcap and mergecap 4.0 copy no names.
	if got := wireshark.Run(t, "tshark", "-N", "n", "-r", path, "-T", "fields", "-e", "ip.src_host", "-e", "ip.dst_host"); strings.TrimSpace(got) != "shop/web-7d9\tweb.shop.svc" {
		t.Errorf("tshark shows %q", got)
	}
}
