package keeper

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	cliresults "github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// relay is the manager as far as a stream needs it. It breaks each stream off after a time.
type relay struct {
	k        *running
	lifetime time.Duration
	streams  atomic.Int32
}

func (m *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.streams.Add(1)
	q, err := keeperapi.ParseLiveQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), m.lifetime)
	defer cancel()
	resp, err := m.k.client.Live(ctx, m.k.addr, path.Base(r.URL.Path), q)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	w.WriteHeader(http.StatusOK)
	b := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(b)
		_, werr := w.Write(b[:n])
		_ = http.NewResponseController(w).Flush()
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil: // else the keeper may have seen the end of ctx first
			return
		case err != nil || werr != nil:
			panic(http.ErrAbortHandler)
		}
	}
}

// aToken is a token that is always valid.
type aToken struct{}

func (aToken) Token(context.Context) (cliresults.Token, error) {
	return cliresults.Token{Text: "token", Age: time.Hour}, nil
}
func (aToken) Invalidate(string) {}

// numbers reads a pcapng stream of numbered packets, which must come in order, and pauses after each of some packets.
type numbers struct {
	mu             sync.Mutex
	packets, last  uint64
	dropped        uint64 // by the statistics at the end
	sections, ifcs int
	err            error
}

func (n *numbers) read(r io.Reader, every uint64, pause time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for reader := pcapng.NewReader(r); ; {
		b, err := reader.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				n.err = err
			}
			return
		}
		switch b := b.(type) {
		case *pcapng.Section:
			n.sections++
		case *pcapng.Interface:
			n.ifcs++
		case *pcapng.Statistics:
			if b.IfDrop != nil {
				n.dropped += *b.IfDrop
			}
		case *pcapng.Packet:
			number := binary.BigEndian.Uint64(b.Data)
			if number <= n.last {
				n.err = errors.New("the packets are not in order")
				_, _ = io.Copy(io.Discard, r)
				return
			}
			if n.packets, n.last = n.packets+1, number; n.packets%every == 0 {
				time.Sleep(pause)
			}
		}
	}
}

// The plugin's stream of a ring has each packet once, in one section, although its connections are broken off all the time. If the reader
// is slower than the writer, it knows how many packets it lacks.
func TestPluginFollowsARing(t *testing.T) {
	for name, tc := range map[string]struct {
		files    int
		bytes    int64
		packets  int
		write    time.Duration // pause of the writer after 50 packets
		read     time.Duration // pause of the reader after 1000 packets
		complete bool
		wantAll  bool
	}{
		// The ring has room for all packets: however slow the machine is, none is missing.
		"a reader that keeps up": {16, 1 << 20, 20_000, 5 * time.Millisecond, 0, true, true},
		"the newest packets":     {16, 1 << 20, 20_000, 5 * time.Millisecond, 0, false, true},
		"full speed":             {2, 1 << 16, 200_000, 0, 0, true, false},
		"a slow reader":          {3, 1 << 20, 200_000, 0, 20 * time.Millisecond, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := run(t, clock.RealClock{})
			w := newRingWriter(t, k, tc.files, tc.bytes)
			manager := &relay{k: k, lifetime: 150 * time.Millisecond}
			server := httptest.NewServer(manager)
			defer server.Close()
			c := &v1alpha1.PacketCapture{}
			timing := cliresults.Timing{Propagation: time.Minute, Pause: time.Millisecond, Idle: 20 * time.Second}
			client, err := cliresults.NewClient(&rest.Config{Host: server.URL}, "sonde-system", c, aToken{}, timing, 1)
			if err != nil {
				t.Fatal(err)
			}
			in, out := io.Pipe()
			got, read := &numbers{}, make(chan struct{})
			go func() {
				defer close(read)
				got.read(in, 1000, tc.read)
			}()
			stream := follow.New(t.Context(), follow.Options{Blocks: client.LiveBlocks, Out: out, FromStart: true, Complete: tc.complete})
			stream.Update(cliresults.Update{UID: "u1", Pod: "web-1", Account: &account.Account{Files: []account.File{{Name: captureconfig.RingFile(ringBase, 1)}}}})
			w.write(tc.packets, tc.write)
			w.finish()
			r, err := stream.Finish(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = out.Close()
			<-read
			t.Logf("%d packets of %d, %d are missing, %d streams", got.packets, w.n, r.Skipped, manager.streams.Load())
			if got.err != nil || got.sections != 1 || got.ifcs != 1 {
				t.Errorf("%d sections, %d interfaces, %v", got.sections, got.ifcs, got.err)
			}
			if got.packets != r.Packets || got.packets+r.Skipped != w.n || got.dropped != r.Skipped || r.Earlier+r.Waited+r.Late != 0 || r.Abandoned {
				t.Errorf("%d packets of %d, and %d count as dropped: %+v", got.packets, w.n, got.dropped, r)
			}
			if (r.Skipped == 0) != tc.wantAll || got.packets == 0 || got.last != w.n {
				t.Errorf("%d packets are missing, the last one is %d", r.Skipped, got.last)
			}
			if manager.streams.Load() < 3 {
				t.Error("the streams were not broken off")
			}
		})
	}
}
