package carrier

import (
	"io"
	"testing"
	"time"
)

// TestClientThatSendsAfterItsPeer: the stream of a client that sends after its peer has gone ends at once. Otherwise each would keep a window
// of memory for a while, which no one counts. On a busy machine one of a few streams may end later.
func TestClientThatSendsAfterItsPeer(t *testing.T) {
	const attempts = 4
	for name, request := range map[string]string{"the peer closes": alice, "its last request": request("GET /a", "X-User: alice", "Connection: close")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took := make(chan time.Duration, attempts)
			client := func(_ string, d duplex) {
				_, _ = io.ReadFull(d, make([]byte, len(request)))
				_, _ = io.WriteString(d, fromCli)
				_, _ = io.Copy(io.Discard, d)
				began := time.Now()
				for {
					if _, err := d.Write(make([]byte, 1<<10)); err != nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				took <- time.Since(began)
			}
			f := start(t, scripted(&recorder{}, nil), client, byUser("alice", "alice"))
			soonest := patience
			for range attempts {
				c := f.dial(t)
				_, _ = io.WriteString(c, request)
				if _, err := io.ReadFull(c, make([]byte, len(fromCli))); err != nil {
					t.Fatal(err)
				}
				_ = c.Close()
				select {
				case d := <-took:
					soonest = min(soonest, d)
				case <-time.After(patience):
					t.Fatal("the client's stream does not end")
				}
				await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
				if soonest < lingerTime/2 {
					return
				}
			}
			t.Errorf("the stream ends %s after the peer has gone", soonest)
		})
	}
}
