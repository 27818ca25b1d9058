package keeper

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// live follows the lines of web.ndjson.
func (k *running) live(t *testing.T, from int64, newest bool) *bufio.Reader {
	t.Helper()
	resp, err := k.client.Live(t.Context(), k.addr, "web.ndjson", keeperapi.LiveQuery{From: from, Newest: newest})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

// next returns the next line that is not a heartbeat.
func next(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line != "\n" {
			return line
		}
	}
}

// Complete lines are sent as they are written, up to the last one.
func TestLive(t *testing.T) {
	k := run(t, clock.RealClock{})
	path := filepath.Join(k.results, "web.ndjson")
	appendTo(t, path, "{\"n\":1}\n{\"n\":2}\n{\"n\"")
	r, second := k.live(t, 0, false), k.live(t, 8, true)
	for _, want := range []string{"{\"n\":1}\n", "{\"n\":2}\n"} {
		if got := next(t, r); got != want {
			t.Errorf("line %q, want %q", got, want)
		}
	}
	appendTo(t, path, ":3}\n")
	if got := next(t, r); got != "{\"n\":3}\n" {
		t.Errorf("line %q", got)
	}
	appendTo(t, path, "{\"n\":4}\n{\"half")
	k.put(t, done)
	rest, err := io.ReadAll(r)
	if err != nil || strings.TrimLeft(string(rest), "\n") != "{\"n\":4}\n" {
		t.Errorf("at the end %q, %v", rest, err)
	}
	all, err := io.ReadAll(second)
	if want := "{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n"; err != nil || strings.ReplaceAll(string(all), "\n\n", "\n") != want {
		t.Errorf("from a byte on %q, %v, want %q", all, err, want)
	}
}

// A slow reader of the newest lines gets the number of skipped bytes. A reader of all lines gets them all.
func TestLiveThatIsFarBehind(t *testing.T) {
	k := run(t, clock.RealClock{})
	var b strings.Builder
	for n := 0; b.Len() < maxLag+liveBytes; n++ {
		fmt.Fprintf(&b, "{\"n\":%d,\"text\":%q}\n", n, strings.Repeat("x", 1000))
	}
	appendTo(t, filepath.Join(k.results, "web.ndjson"), b.String())
	k.put(t, done)

	all, err := io.ReadAll(k.live(t, 0, false))
	if err != nil || strings.TrimLeft(string(all), "\n") != b.String() {
		t.Errorf("%d bytes of %d, %v", len(all), b.Len(), err)
	}
	r := k.live(t, 0, true)
	var got strings.Builder
	line := next(t, r)
	skipped, ok := tracefmt.ParseSkip([]byte(line))
	if !ok {
		t.Fatalf("the first line is %.80q", line)
	}
	if _, err := io.Copy(&got, r); err != nil {
		t.Fatal(err)
	}
	if rest := b.String()[skipped:]; got.String() != rest || len(rest) > liveBytes || len(rest) < liveBytes-2000 {
		t.Errorf("%d bytes are left out, and %d of %d come", skipped, got.Len(), len(rest))
	}
}

func TestLiveRefuses(t *testing.T) {
	k := run(t, clock.RealClock{})
	appendTo(t, filepath.Join(k.results, ".hidden.ndjson"), "{}\n")
	appendTo(t, filepath.Join(k.results, "api-0000000001.pcapng"), "")
	for name, tc := range map[string]struct {
		file     string
		from     int64
		ring     bool
		wantCode int
	}{
		"flap":                 {"web.log", 0, false, http.StatusNotFound},
		"not there":            {"api.ndjson", 0, false, http.StatusNotFound},
		"hidden":               {".hidden.ndjson", 0, false, http.StatusNotFound},
		"no beginning":         {"web.ndjson", -1, false, http.StatusBadRequest},
		"one file as a ring":   {"web.pcapng", 0, true, http.StatusBadRequest},
		"a trace as a ring":    {"web-0000000001.ndjson", 0, true, http.StatusBadRequest},
		"another Pod's ring":   {"sink-0000000001.pcapng", 0, true, http.StatusNotFound},
		"a hidden ring":        {".web-0000000001.pcapng", 0, true, http.StatusNotFound},
		"another probe's ring": {"api-0000000002.pcapng", 7, true, http.StatusNotFound},
		"another Pod's file":   {"sink-0000000001.pcapng", 0, false, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := k.client.Live(t.Context(), k.addr, tc.file, keeperapi.LiveQuery{From: tc.from, Ring: tc.ring})
			if err == nil {
				resp.Body.Close()
			}
			var status *keeperapi.StatusError
			if !errors.As(err, &status) || status.Code != tc.wantCode {
				t.Errorf("Live: %v, want %d", err, tc.wantCode)
			}
		})
	}
}

// Whole blocks of packets are sent as they are written, and the last ones at the end.
func TestLiveBlocks(t *testing.T) {
	k := run(t, clock.RealClock{})
	path := filepath.Join(k.results, "live.pcapng")
	packet := func(n uint64) []byte {
		return pcapng.AppendPacket(nil, &pcapng.Packet{Time: n, Data: []byte("x"), Length: 1})
	}
	head := pcapng.AppendInterface(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	first, second := packet(1), packet(2)
	appendTo(t, path, string(head)+string(first)+string(second[:10]))
	resp, err := k.client.Live(t.Context(), k.addr, "live.pcapng", keeperapi.LiveQuery{Newest: true})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := pcapng.NewReader(resp.Body)
	times := func(n int) (got []uint64) {
		for len(got) < n {
			b, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := b.(*pcapng.Packet); ok {
				got = append(got, p.Time)
			}
		}
		return got
	}
	if got := times(1); got[0] != 1 {
		t.Errorf("packets %v", got)
	}
	appendTo(t, path, string(second[10:])+string(packet(3)))
	if got := times(2); got[0] != 2 || got[1] != 3 {
		t.Errorf("packets %v", got)
	}
	k.put(t, done)
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// The reader learns up to which time it has all packets, behind the last of them. The probe learns whether there is a reader.
func TestLiveHorizon(t *testing.T) {
	k := run(t, clock.RealClock{})
	packet := func(n uint64) string {
		return string(pcapng.AppendPacket(nil, &pcapng.Packet{Time: n, Data: []byte("x"), Length: 1}))
	}
	horizon := func(at uint64) {
		write(t, filepath.Join(k.results, captureconfig.HorizonFile), string(captureconfig.AppendHorizon(nil, at)))
	}
	follow := func(want string) {
		await(t, "the follow file says "+want, func() bool {
			b, err := os.ReadFile(filepath.Join(k.control, captureconfig.FollowFile))
			return err == nil && string(b) == want
		})
	}
	path := filepath.Join(k.results, "live.pcapng")
	head := pcapng.AppendInterface(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	appendTo(t, path, string(head)+packet(5))
	horizon(7)
	var readers []*bufio.Scanner
	for range 2 {
		resp, err := k.client.Live(t.Context(), k.addr, "live.pcapng", keeperapi.LiveQuery{Newest: true})
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		blocks := bufio.NewScanner(resp.Body)
		blocks.Split(pcapng.SplitBlocks)
		readers = append(readers, blocks)
	}
	follow("1")
	// said are the times of packets, and those up to which all have come as negative numbers.
	said := func(blocks *bufio.Scanner, n int) (got []int) {
		for len(got) < n && blocks.Scan() {
			if gap, err := pcapng.ParseGap(blocks.Bytes()); err != nil || gap != nil {
				if gap.Until > 0 {
					got = append(got, -int(gap.Until))
				}
				continue
			}
			if b := blocks.Bytes(); len(b) == len(packet(0)) {
				got = append(got, int(pcapng.PacketHeaderOf(b).Time()))
			}
		}
		return got
	}
	for _, r := range readers {
		if diff := cmp.Diff([]int{5, -7}, said(r, 2)); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	}
	appendTo(t, path, packet(8)+packet(9))
	horizon(10)
	for _, r := range readers {
		if diff := cmp.Diff([]int{8, 9, -10}, said(r, 3)); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	}
	write(t, filepath.Join(k.results, captureconfig.HorizonFile), "no horizon")
	appendTo(t, path, packet(11))
	k.put(t, done)
	for _, r := range readers {
		if diff := cmp.Diff([]int{11}, said(r, 2)); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	}
	follow("0")
	if resp, err := k.client.File(t.Context(), k.addr, captureconfig.HorizonFile, ""); err == nil {
		resp.Body.Close()
		t.Error("the horizon is served as a result")
	}
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// A fast writer's file is sent at a bounded rate, in parts that grow with the time since the last one.
func TestAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		form *records
		ago  time.Duration
		want int64
	}{
		"first part of packets":  {blockRecords, time.Hour, blockRecords.atOnce},
		"next part of packets":   {blockRecords, 0, blockRecords.atOnce / 10},
		"each part of a trace":   {lineRecords, 0, lineRecords.atOnce},
		"after a trace was idle": {lineRecords, time.Hour, lineRecords.atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			f := &follower{records: tc.form, sent: time.Now().Add(-tc.ago)}
			if got := f.allowed(); got < tc.want || got > tc.want+tc.form.atOnce/20 {
				t.Errorf("%d bytes, want %d", got, tc.want)
			}
		})
	}
}

// What is skipped for a slow reader is counted to the packet, and the interfaces in it are sent.
func TestSkipBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	iface := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth1", LinkType: pcapng.LinkTypeEthernet})
	packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("x"), Length: 1})
	appendTo(t, path, string(packet)+string(iface)+string(packet)+string(packet)+string(packet[:7]))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(3*len(packet) + len(iface))
	block, at, err := skipBlocks(f, 0, size+7)
	if err != nil || at != size {
		t.Fatalf("skipped to %d, %v, want %d", at, err, size)
	}
	gap, err := pcapng.ParseGap(block)
	if err != nil || gap.Packets != 3 || gap.Bytes != uint64(size) || string(gap.Others) != string(iface) {
		t.Errorf("%+v, %v", gap, err)
	}
}
