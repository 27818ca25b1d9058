package results

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

func ringFile(number uint64) string { return captureconfig.RingFile("web-1-qwer", number) }

// newRingClient returns a client of a capture. serve answers the nth request for its blocks; asked has the file and the parameters of each.
func newRingClient(t *testing.T, serve func(n int, w http.ResponseWriter)) (c *Client, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, path.Base(r.URL.Path)+"?"+r.URL.RawQuery)
		serve(len(*asked), w)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL}, "sonde-system", named(&v1alpha1.PacketCapture{}), &tokens{age: time.Hour}, quick, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

// The files of a ring come one after the other. A lost connection continues behind the last block, in the file that was named last, and
// says how many packets have passed.
func TestLiveBlocksOfARing(t *testing.T) {
	head := pcapng.AppendInterface(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	packet := pcapng.AppendPacket(nil, &pcapng.Packet{Data: []byte("data"), Length: 4})
	file := func(number, at, packets uint64) []byte {
		return pcapng.AppendGap(nil, &pcapng.Gap{File: ringFile(number), At: at, Packets: packets})
	}
	c, asked := newRingClient(t, func(n int, w http.ResponseWriter) {
		switch n {
		case 1:
			_, _ = w.Write(slices.Concat(file(2, 0, 5), head, packet, packet, file(3, 0, 0), head, packet, pcapng.AppendGap(nil, &pcapng.Gap{Bytes: 100, Packets: 3}), packet[:9]))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			_, _ = w.Write(slices.Concat(file(3, uint64(len(head)+len(packet)+100), 0), packet, file(4, 0, 0)))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			_, _ = w.Write(slices.Concat(file(9, 0, 7), head, packet))
		}
	})
	got := &blockSink{}
	if err := c.LiveBlocks(t.Context(), "u1", ringFile(1), true, got); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range got.blocks {
		if pcapng.IsPacket([]byte(b)) {
			n++
		}
	}
	if n != 5 || got.gaps != 15 || slices.Contains(got.waited, true) || len(got.blocks) != 5+3*2 {
		t.Errorf("%d packets in %d blocks, %d are missing, waited %v", n, len(got.blocks), got.gaps, got.waited)
	}
	want := []string{
		ringFile(1) + "?from=0&newest=1&ring=0",
		ringFile(3) + fmt.Sprintf("?from=%d&newest=1&ring=11", len(head)+len(packet)+100),
		ringFile(4) + "?from=0&newest=1&ring=12",
	}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// An operator or an agent that cannot join a ring sends one file alone. That is an error, and not the end of the packets.
func TestLiveBlocksOfARingErrors(t *testing.T) {
	section := pcapng.AppendSection(nil, &pcapng.Section{})
	file := func(name string) []byte { return pcapng.AppendGap(nil, &pcapng.Gap{File: name}) }
	noFile := func(w http.ResponseWriter) { refuse(w, 404, "no file x of this Pod: see files in status.pods") }
	for name, tc := range map[string]struct {
		serve  func(n int, w http.ResponseWriter)
		wantIs error
		want   string
	}{
		"one file alone":      {func(_ int, w http.ResponseWriter) { _, _ = w.Write(section) }, ErrNoLiveRing, "older than this plugin"},
		"a sign of life":      {func(_ int, w http.ResponseWriter) { _, _ = w.Write(pcapng.AppendGap(nil, &pcapng.Gap{})) }, ErrNoLiveRing, "kubectl sonde download"},
		"a file that is lost": {func(_ int, w http.ResponseWriter) { noFile(w) }, ErrNoLiveRing, "older than this plugin"},
		"an older operator":   {func(_ int, w http.ResponseWriter) { refuse(w, 404, "no such path: GET /v1/namespaces/...") }, ErrNoLiveLines, "older than this plugin"},
		"another probe": {func(n int, w http.ResponseWriter) {
			if n > 1 {
				noFile(w)
				return
			}
			_, _ = w.Write(append(file(ringFile(3)), section...))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, nil, "follow " + ringFile(3) + ": no file x of this Pod"},
		"an older file":       {func(_ int, w http.ResponseWriter) { _, _ = w.Write(append(file(ringFile(3)), file(ringFile(2))...)) }, pcapng.ErrFormat, ringFile(2)},
		"another Pod's file":  {func(_ int, w http.ResponseWriter) { _, _ = w.Write(file("api-0000000003.pcapng")) }, pcapng.ErrFormat, "api-"},
		"a path":              {func(_ int, w http.ResponseWriter) { _, _ = w.Write(file("../" + ringFile(3))) }, pcapng.ErrFormat, ".."},
		"no file of the ring": {func(_ int, w http.ResponseWriter) { _, _ = w.Write(file("web-1-qwer.pcapng")) }, pcapng.ErrFormat, "web-1-qwer.pcapng"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newRingClient(t, tc.serve)
			err := c.LiveBlocks(t.Context(), "u1", ringFile(1), false, &blockSink{})
			if err == nil || tc.wantIs != nil && !errors.Is(err, tc.wantIs) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
