package results

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sonde-operator/sonde/internal/agentjob"
)

const traceLive = "/v1/namespaces/shop/traces/web/live/pod-1/web-1-qwer.ndjson"

// Lines come as the keeper sends them, and an event records the bytes read.
func TestLive(t *testing.T) {
	w := newTraceWorld(t)
	resp := w.get(traceLive+"?from=7&newest=1", nil)
	if resp.code != http.StatusOK || resp.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("got %d, %v", resp.code, resp.header)
	}
	r := bufio.NewReader(resp.body)
	for _, want := range []string{"from=7&newest=1\n", "one\n", "two\n"} {
		if want != "from=7&newest=1\n" {
			w.keeper.lines <- want
		}
		if got, err := r.ReadString('\n'); err != nil || got != want {
			t.Fatalf("line %q, %v, want %q", got, err, want)
		}
	}
	close(w.keeper.lines)
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("at the end %q, %v", rest, err)
	}
	if note := <-w.events.Events; !strings.Contains(note, "alice read 24 bytes from byte 7 on of web-1-qwer.ndjson of Pod web-1 (live)") {
		t.Errorf("event %q", note)
	}
}

// ringFile is a file of a ring, and ringLive the path on which it and the files after it are read.
const (
	ringFile = "web-1-qwer-0000000002.pcapng"
	ringLive = "/v1/namespaces/shop/packetcaptures/web/live/pod-1/" + ringFile
)

// The keeper gets the place in a ring, and the event says that the bytes are of several files.
func TestLiveRing(t *testing.T) {
	w := newWorld(t)
	resp := w.get(ringLive+"?from=7&ring=9", nil)
	if resp.code != http.StatusOK || resp.header.Get("Content-Type") != "application/x-pcapng" {
		t.Fatalf("got %d, %v", resp.code, resp.header)
	}
	close(w.keeper.lines)
	if all, err := io.ReadAll(resp.body); err != nil || !strings.HasPrefix(string(all), "from=7&ring=9\n") {
		t.Errorf("got %q, %v", all, err)
	}
	if note := <-w.events.Events; !strings.Contains(note, "from byte 7 on of "+ringFile+" and the files after it of Pod web-1 (live)") {
		t.Errorf("event %q", note)
	}
	w.fails(w.get(ringLive+"?ring=x", nil), 400, "ring: write the number of packets")
	w.fails(w.get("/v1/namespaces/shop/packetcaptures/web/live/pod-1/web-1-qwer.pcapng?ring=0", nil), 400, "is no file of a ring")
}

// A user who loses the right gets no more lines.
func TestLiveEndsWithTheRight(t *testing.T) {
	w := newTraceWorld(t)
	resp := w.get(traceLive, nil)
	r := bufio.NewReader(resp.body)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	w.rights.set(false, false)
	if rest, err := io.ReadAll(r); err == nil {
		t.Errorf("the stream ended as if it were complete, with %q", rest)
	}
	if note := <-w.events.Events; !strings.Contains(note, "broken off") {
		t.Errorf("event %q", note)
	}
}

func TestLiveRefusals(t *testing.T) {
	const base = "/v1/namespaces/shop/traces/web/live/"
	for name, tc := range map[string]struct {
		path   string
		change func(*world)
		code   int
		want   string
	}{
		"lines of FLAP":   {base + "pod-1/web-1-qwer.log", nil, 404, "/live/UID/FILE"},
		"a hidden file":   {base + "pod-1/.web.ndjson", nil, 404, "/live/UID/FILE"},
		"an unknown file": {base + "pod-1/other.ndjson", nil, 404, "no file other.ndjson"},
		"an unknown Pod":  {base + "pod-9/web.ndjson", nil, 404, "no Pod with this UID"},
		"no number":       {traceLive + "?from=-1", nil, 400, "from: write the number of the first byte"},
		"no right":        {traceLive, func(w *world) { w.rights.set(false, false) }, 403, "lacks trace on pods"},
		"a node's, without the right": {traceLive, func(w *world) {
			change(w, agent(w.traced("web-1-trce-x", "")), func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, agentjob.FlagHostPID)
			})
		}, 403, "lacks trace on nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraceWorld(t)
			if tc.change != nil {
				tc.change(w)
			}
			w.fails(w.get(tc.path, nil), tc.code, tc.want)
		})
	}
}
