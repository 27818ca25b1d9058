package results

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const livePath = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/shop/traces/web/live/u1/web-1.ndjson"

// newLiveClient returns a client of a trace. serve answers the nth request for its lines.
func newLiveClient(t *testing.T, timing Timing, s Tokens, serve func(n int, w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != livePath {
			t.Errorf("asked for %s", r.URL.Path)
		}
		n++
		serve(n, w, r)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL}, "sonde-system", named(&v1alpha1.Trace{}), s, timing, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func skip(t *testing.T, n int64) string {
	t.Helper()
	b, err := tracefmt.AppendSkip(nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A stream whose connection is lost continues after its last complete line. Heartbeats and skips are not lines.
func TestLive(t *testing.T) {
	var asked []string
	c := newLiveClient(t, quick, &tokens{}, func(n int, w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch n {
		case 1:
			refuse(w, http.StatusNotFound, "no file web-1.ndjson of this Pod")
		case 2:
			fmt.Fprint(w, "{\"n\":1}\n\n{\"n\":2}\n"+skip(t, 100)+"\n{\"n\"")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 3:
			apiRefuse(w, http.StatusServiceUnavailable, "no endpoints available")
		default:
			fmt.Fprint(w, "{\"n\":3}\n")
		}
	})
	var got bytes.Buffer
	if err := c.Live(t.Context(), "u1", "web-1.ndjson", true, &got); err != nil {
		t.Fatal(err)
	}
	if want := "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"; got.String() != want {
		t.Errorf("lines %q, want %q", got.String(), want)
	}
	const first, then = "from=0&newest=1", "from=116&newest=1"
	if len(asked) < 4 || asked[0] != first || asked[len(asked)-1] != then {
		t.Errorf("asked for %q, want at first %s, and %s at the end", asked, first, then)
	}
}

func TestLiveErrors(t *testing.T) {
	aged := func() *tokens { return &tokens{age: time.Hour} }
	for name, tc := range map[string]struct {
		serve   func(http.ResponseWriter)
		to      io.Writer
		want    string
		wantIs  error
		wantNot error
	}{
		"an older operator": {
			serve: func(w http.ResponseWriter) { refuse(w, 404, "no such path: GET /v1/namespaces/...") },
			want:  "older than this plugin", wantIs: ErrNoLiveLines,
		},
		"gone": {serve: func(w http.ResponseWriter) { refuse(w, 410, "the files are gone") }, want: "follow web-1.ndjson: the files are gone", wantNot: ErrNoLiveLines},
		"no operator": {
			serve: func(w http.ResponseWriter) { apiRefuse(w, 404, `services "sonde-results" not found`) }, want: "--operator-namespace", wantNot: ErrNoLiveLines,
		},
		"no reader":       {serve: func(w http.ResponseWriter) { fmt.Fprintln(w, "{}") }, to: closedWriter{}, want: "the output could not be written", wantIs: io.ErrClosedPipe},
		"an endless line": {serve: func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", tracefmt.MaxLine+10)) }, want: "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			to := tc.to
			if to == nil {
				to = io.Discard
			}
			c := newLiveClient(t, quick, aged(), func(_ int, w http.ResponseWriter, _ *http.Request) { tc.serve(w) })
			err := c.Live(t.Context(), "u1", "web-1.ndjson", false, to)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if tc.wantIs != nil && !errors.Is(err, tc.wantIs) || tc.wantNot != nil && errors.Is(err, tc.wantNot) {
				t.Errorf("error %v is of another kind", err)
			}
		})
	}
}

// blockSink keeps blocks, one from each Write, and is slow once.
type blockSink struct {
	blocks []string
	slow   time.Duration
	gaps   uint64
	waited []bool // of each gap
	until  []uint64
}

func (s *blockSink) Until(at uint64) { s.until = append(s.until, at) }

func (s *blockSink) Gap(packets uint64, waited bool) {
	s.gaps += packets
	s.waited = append(s.waited, waited)
}

func (s *blockSink) Write(b []byte) (int, error) {
	time.Sleep(s.slow)
	s.slow = 0
	s.blocks = append(s.blocks, string(b))
	return len(b), nil
}

// Blocks come one by one, also those in a gap, and a lost connection continues behind the last one. A reader that is slower than the
// connection may be idle loses nothing.
func TestLiveBlocks(t *testing.T) {
	section := pcapng.AppendSection(nil, &pcapng.Section{})
	eth0 := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	eth1 := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth1", LinkType: pcapng.LinkTypeEthernet})
	packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("data"), Length: 4})
	left := uint64(len(eth0)+len(eth1)) + 10_000
	gap := pcapng.AppendGap(nil, &pcapng.Gap{Bytes: left, Packets: 7, Others: slices.Concat(eth0, eth1)})
	until := pcapng.AppendGap(nil, &pcapng.Gap{Until: 42})
	idle := pcapng.AppendGap(nil, &pcapng.Gap{})
	var asked []string
	timing := quick
	timing.Idle = 50 * time.Millisecond
	c := newLiveClient(t, timing, &tokens{}, func(n int, w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if n == 1 {
			_, _ = w.Write(slices.Concat(section, idle, gap, packet, until, packet[:20]))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(packet)
	})
	got := &blockSink{slow: 4 * timing.Idle}
	if err := c.LiveBlocks(t.Context(), "u1", "web-1.ndjson", true, got); err != nil {
		t.Fatal(err)
	}
	want := []string{string(section), string(eth0), string(eth1), string(packet), string(packet)}
	if diff := cmp.Diff(want, got.blocks); diff != "" || got.gaps != 7 || !slices.Equal(got.until, []uint64{42}) {
		t.Errorf("%d packets left out, times %v, blocks (-want +got):\n%s", got.gaps, got.until, diff)
	}
	then := fmt.Sprintf("from=%d&newest=1", len(section)+int(left)+len(packet))
	if diff := cmp.Diff([]string{"from=0&newest=1", then}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A gap says whether the stream waited for a place or a connection before its first packet, and not whether it lost its connection later.
func TestGapAfterWaiting(t *testing.T) {
	gap := pcapng.AppendGap(nil, &pcapng.Gap{Bytes: 100, Packets: 7})
	for name, tc := range map[string]struct {
		first func(w http.ResponseWriter)
		want  []bool
	}{
		"no place at first": {func(w http.ResponseWriter) { refuse(w, http.StatusTooManyRequests, "this user has 16 streams open") }, []bool{true}},
		"no connection before the first packet": {func(w http.ResponseWriter) {
			_, _ = w.Write(gap)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, []bool{false, true}},
		"no connection later": {func(w http.ResponseWriter) {
			_, _ = w.Write(slices.Concat(gap, pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("data"), Length: 4})))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newLiveClient(t, quick, &tokens{}, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					tc.first(w)
					return
				}
				_, _ = w.Write(gap)
			})
			got := &blockSink{}
			err := c.LiveBlocks(t.Context(), "u1", "web-1.ndjson", true, got)
			if err != nil || !slices.Equal(got.waited, tc.want) {
				t.Errorf("gaps after waiting %v, %v, want %v", got.waited, err, tc.want)
			}
		})
	}
}

// A gap that ends within a block, and what is no block, end the stream with an error.
func TestLiveBlocksDamaged(t *testing.T) {
	for name, stream := range map[string][]byte{
		"a gap":    pcapng.AppendGap(nil, &pcapng.Gap{Others: []byte("half of a block!")}),
		"no block": []byte("this is no block of any packet"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newLiveClient(t, quick, &tokens{}, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(stream) })
			err := c.LiveBlocks(t.Context(), "u1", "web-1.ndjson", false, &blockSink{})
			if !errors.Is(err, pcapng.ErrFormat) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// closedWriter is a writer without a reader.
type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
