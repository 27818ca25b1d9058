package results

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestLiveWindow(t *testing.T) {
	for pods, want := range map[int]int{0: liveAhead / assumedPods, 1: mostWindow, 2: liveAhead / 2, 10: liveAhead / 10, 1000: leastWindow} {
		if got := liveWindow(pods); got != want {
			t.Errorf("%d Pods: %d bytes, want %d", pods, got, want)
		}
	}
}

// blockedWriter never takes anything.
type blockedWriter struct{ ctx context.Context } //nolint:containedctx // io.Writer has none

func (b blockedWriter) Write([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// A stream whose reader is slow holds few bytes in memory: the server waits.
func TestSlowReaderHoldsLittle(t *testing.T) {
	const pods = 10
	var sent atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s with %q, want HTTP/2 with the token of the user", r.Proto, r.Header.Get("Authorization"))
		}
		line := append(make([]byte, 1023), '\n')
		for r.Context().Err() == nil {
			n, err := w.Write(line)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	c, err := NewClient(config, "sonde-system", named(&v1alpha1.Trace{}), &tokens{}, DefaultTiming, pods)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Live(ctx, "u1", "web-1.ndjson", true, blockedWriter{ctx}) }()
	for last := int64(0); last == 0 || sent.Load() > last; time.Sleep(200 * time.Millisecond) {
		last = sent.Load()
	}
	const readBuffer, serverBuffers = 64 << 10, 64 << 10
	if most := int64(liveWindow(pods) + readBuffer + serverBuffers); sent.Load() > most {
		t.Errorf("%d bytes were sent, want %d at most", sent.Load(), most)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}
