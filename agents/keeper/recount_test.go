package keeper

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// captured returns a file with packets of 100 bytes each, 60 of them captured.
func captured(packets int) []byte {
	b := pcapng.AppendSection(nil, &pcapng.Section{Application: "test", Comments: []string{"a comment"}})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	for i := range packets {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Data: bytes.Repeat([]byte{byte(i)}, 60), Length: 100, Time: uint64(i)})
	}
	return b
}

func TestRecount(t *testing.T) {
	header, one := int64(len(captured(0))), int64(len(captured(1))-len(captured(0)))
	statistics := pcapng.AppendStatistics(captured(3), &pcapng.Statistics{})
	odd := bytes.Clone(captured(3))
	odd[len(odd)-4]++ // the second length of the last block
	for name, tc := range map[string]struct {
		file []byte
		want contents
	}{
		"nothing":                     {},
		"no packet":                   {captured(0), contents{bytes: header}},
		"whole":                       {captured(3), contents{bytes: header + 3*one, packets: 3, truncated: 3, captured: 180}},
		"whole, with statistics":      {statistics, contents{bytes: int64(len(statistics)), packets: 3, truncated: 3, captured: 180}},
		"cut in a packet":             {captured(3)[:header+3*one-5], contents{bytes: header + 2*one, packets: 2, truncated: 2, captured: 120}},
		"cut in a block's header":     {captured(3)[:header+2*one+10], contents{bytes: header + 2*one, packets: 2, truncated: 2, captured: 120}},
		"cut before a packet's bytes": {captured(3)[:header+2*one+20], contents{bytes: header + 2*one, packets: 2, truncated: 2, captured: 120}},
		"zeros at the end":            {append(captured(1), make([]byte, 4096)...), contents{bytes: header + one, packets: 1, truncated: 1, captured: 60}},
		"a block that contradicts":    {odd, contents{bytes: header + 2*one, packets: 2, truncated: 2, captured: 120}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := recount(bytes.NewReader(tc.file))
			if err != nil || got != tc.want {
				t.Errorf("recount: %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

// Wherever a file is cut, the count equals what a reader of the part before the cut finds.
func TestRecountOfAFileCutAnywhere(t *testing.T) {
	whole := captured(20)
	for cut := range len(whole) {
		h, err := recount(bytes.NewReader(whole[:cut]))
		if err != nil {
			t.Fatal(err)
		}
		if got := readPackets(t, whole[:h.bytes]); got != h.packets {
			t.Fatalf("cut at %d: %d packets in %d bytes, counted %d", cut, got, h.bytes, h.packets)
		}
	}
}

func readPackets(t *testing.T, file []byte) int64 {
	t.Helper()
	r := pcapng.NewReader(bytes.NewReader(file))
	for n := int64(0); ; {
		block, err := r.Next()
		if errors.Is(err, io.EOF) || err != nil && len(file) == 0 {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := block.(*pcapng.Packet); ok {
			n++
		}
	}
}

func FuzzRecount(f *testing.F) {
	f.Add(captured(3))
	f.Add(append(captured(1), 6, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := recount(bytes.NewReader(file))
		if err != nil || h.bytes < 0 || h.bytes > int64(len(file)) || h.captured > h.bytes || h.packets*32 > h.bytes {
			t.Errorf("%+v, %v, of %d bytes", h, err, len(file))
		}
	})
}

// A probe is killed in the middle of a block: the account counts the complete blocks, and only they are served.
func TestRecountOfAKilledProbe(t *testing.T) {
	k := run(t, clock.RealClock{})
	full := captured(5)
	write(t, filepath.Join(k.results, "web.pcapng"), string(full)+string(full[:7+rand.IntN(20)]))
	got, err := k.client.Recount(t.Context(), k.addr)
	if err != nil {
		t.Fatal(err)
	}
	want := account.Account{Version: got.Version, State: account.StateCapturing, Files: []account.File{{Name: "web.pcapng", Bytes: int64(len(full))}}}
	want.Seen, want.Packets, want.Bytes, want.Truncated = 5, 5, 300, 5
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	resp, err := k.client.File(t.Context(), k.addr, "web.pcapng", "")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if served, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(served, full) {
		t.Errorf("%d bytes served (%v), want the %d that are whole blocks", len(served), err, len(full))
	}
}

// A trace of format flap has two files, and its account names them in the order of the trace's groups.
func TestRecountOfTwoFiles(t *testing.T) {
	const call = "1 {pid=1 tid=1 proc=a}{EN read}{fd=1}\n2 {pid=1 tid=1 proc=a}{EX read}{ret=1 latency=1}\n"
	const io, memory = "web-l3cr-trace_io_0.log", "web-l3cr-trace_memory_0.log"
	for name, order := range map[string][]string{"io first": {io, memory}, "memory first": {memory, io}} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			write(t, filepath.Join(k.results, io), call+call)
			write(t, filepath.Join(k.results, memory), call)
			a := account.Account{State: account.StateCapturing, Files: []account.File{{Name: order[0]}, {Name: order[1]}}}
			b, err := a.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(k.results, captureconfig.ProgressFile), string(b))
			got, err := k.client.Recount(t.Context(), k.addr)
			if err != nil {
				t.Fatal(err)
			}
			want := []account.File{{Name: io, Bytes: 2 * int64(len(call))}, {Name: memory, Bytes: int64(len(call))}}
			if diff := cmp.Diff(want, got.Files); diff != "" || got.Events != 3 {
				t.Errorf("%d events, want 3; files (-want +got):\n%s", got.Events, diff)
			}
		})
	}
}

// Requests during a count wait for its result. Only a failed count is repeated.
func TestRecountIsDoneOnce(t *testing.T) {
	var r recounts
	var counts int
	again := make(chan struct{})
	fails := func() (account.Account, map[string]int64, error) { return account.Account{}, nil, io.ErrUnexpectedEOF }
	<-r.start(fails).done
	slow := func() (account.Account, map[string]int64, error) {
		counts++
		<-again
		var a account.Account
		a.Packets = 3
		return a, map[string]int64{"web.pcapng": 10}, nil
	}
	first, second := r.start(slow), r.start(slow)
	if got := r.size("web.pcapng", 12); got != 12 {
		t.Errorf("%d bytes served while they are counted, want all", got)
	}
	close(again)
	<-second.done
	if third := r.start(slow); first != second || second != third || counts != 1 || third.account.Packets != 3 {
		t.Errorf("counted %d times: %+v", counts, third.account)
	}
	for name, want := range map[string]int64{"web.pcapng": 10, "other.pcapng": 12} {
		if got := r.size(name, 12); got != want {
			t.Errorf("%d bytes of %s served, want %d", got, name, want)
		}
	}
}
