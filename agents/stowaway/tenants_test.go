//go:build !race

package stowaway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// closed reports whether one of the connections has ended: this process got no processor for longer than tunnel.PingTimeout.
func closed(connections ...<-chan struct{}) bool {
	for _, gone := range connections {
		select {
		case <-gone:
			return true
		case <-time.After(100 * time.Millisecond): // an error of a stream may come first
		}
	}
	return false
}

// flood returns carriers of a namespace.
func flood(t *testing.T, pods int) (carriers []tunnel.Carrier, ids []*tunnel.Identity, uids []string) {
	t.Helper()
	for n := range pods {
		ids, uids = append(ids, identity(t)), append(uids, fmt.Sprint("q", n))
		carriers = append(carriers, tunnel.Carrier{Pod: uids[n], Name: fmt.Sprint("flood/web", n), Key: ids[n].Key})
	}
	return carriers, ids, uids
}

// TestMemoryOfQuietStreams: a namespace that makes memory short with streams on which nothing happens does not end another one's download,
// whose caller reads slowly.
func TestMemoryOfQuietStreams(t *testing.T) {
	const sessions, streams, pods = 4, 1020, 40
	w, peak := newProcess(t)
	good, carrier := identity(t), identity(t)
	carriers, ids, uids := flood(t, pods)
	routes := []tunnel.Route{{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"p"}}}
	var bad []*tunnel.Identity
	for n := range sessions {
		bad = append(bad, identity(t))
		routes = append(routes, tunnel.Route{ID: fmt.Sprint("bad", n), Name: fmt.Sprint("flood/bad", n), ClientKey: bad[n].Key, Port: uint16(81 + n), Pods: uids})
	}
	w.set(append(carriers, tunnel.Carrier{Pod: "p", Name: "shop/web", Key: carrier.Key}), routes...)
	client := w.send(good, 1<<30)
	for _, id := range bad {
		w.send(id, 0)
	}
	p := w.mustPeer(carrier)
	watch(t, p).await(t, 20*time.Second, "good")
	var peers []*tunnel.Peer
	for _, id := range ids {
		peers = append(peers, w.mustPeer(id))
	}
	watch(t, peers[0]).await(t, 20*time.Second, "bad0 bad1 bad2 bad3")
	var opening sync.WaitGroup
	var opened atomic.Int32
	places := make(chan struct{}, 64)
	for n := range sessions * streams {
		places <- struct{}{}
		opening.Go(func() {
			defer func() { <-places }()
			if s, err := peers[n%pods].Open(t.Context(), fmt.Sprint(tunnel.PathOpen, "bad", n%sessions), nil); err == nil {
				opened.Add(1)
				t.Cleanup(func() { _ = s.Close() })
			}
		})
	}
	opening.Wait()
	t.Logf("%d quiet streams are open; %d MiB at most", opened.Load(), peak()>>20)
	read, b, s := 0, make([]byte, 32<<10), (*tunnel.Stream)(nil)
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		n, err := 0, error(nil)
		if s == nil {
			s, err = p.Open(t.Context(), tunnel.PathOpen+"good", nil)
		} else {
			n, err = s.Read(b)
		}
		read += n
		switch {
		case err == nil:
		case closed(p.Gone(), client):
			client, p, s = w.send(good, 1<<30), w.mustPeer(carrier), nil
			watch(t, p).await(t, 20*time.Second, "good")
		default:
			t.Fatalf("another namespace's download ends after %d KiB: %v", read>>10, err)
		}
	}
	t.Logf("the download has %d MiB; %d MiB at most", read>>20, peak()>>20)
	if got := peak(); got > memoryLimit {
		t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
	}
}

// TestMemoryOfReports: carriers of a namespace do not take Stowaway's memory without a stream. They send the largest reports on several
// connections, and requests whose bodies Stowaway does not read. A stream of another namespace works at the same time.
func TestMemoryOfReports(t *testing.T) {
	const pods, connections, window = 80, 4, int(tunnel.Near)
	for name, line := range map[string]string{
		"large":        `{"steered":[1` + strings.Repeat(",1", 250<<10) + "]}\n",
		"not too long": `{"steered":[1` + strings.Repeat(",1", maxReport(0)/2-100) + "]}\n",
		"without end":  strings.Repeat(" ", maxReport(0)),
	} {
		t.Run(name, func(t *testing.T) {
			w, peak := newProcess(t)
			good, carrier := identity(t), identity(t)
			carriers, ids, _ := flood(t, pods)
			w.set(append(carriers, tunnel.Carrier{Pod: "p", Name: "shop/web", Key: carrier.Key}),
				tunnel.Route{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"p"}})
			client, p := w.connect(good, "good"), w.mustPeer(carrier)
			watch(t, p).await(t, 20*time.Second, "good")
			var sent atomic.Int64
			for n := range connections * pods {
				peer := w.mustPeer(ids[n%pods])
				for path, method := range map[string]string{tunnel.PathReport: http.MethodPost, tunnel.PathRoutes: http.MethodGet} {
					body, in := io.Pipe()
					r, err := tunnel.NewRequest(t.Context(), method, path, body)
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						if response, err := peer.Do(r); err == nil {
							<-t.Context().Done() // it is not read
							_ = response.Body.Close()
						}
						_ = body.Close()
					}()
					go func() {
						for size := 0; size < len(line)+window; size += len(line) {
							n, err := io.WriteString(in, line)
							sent.Add(int64(n))
							if err != nil || !strings.HasSuffix(line, "\n") {
								return
							}
						}
					}()
				}
			}
			for before := int64(-1); before != sent.Load(); time.Sleep(time.Second) {
				before = sent.Load()
			}
			for range 20 {
				got, err := say(t, p, "good", "still here")
				switch {
				case err == nil:
				case closed(p.Gone(), client.served):
					client, p = w.connect(good, "good"), w.mustPeer(carrier)
					watch(t, p).await(t, 20*time.Second, "good")
				default:
					t.Fatalf("another namespace's stream reads %q, %v", got, err)
				}
			}
			t.Logf("%d MiB sent, %d MiB at most", sent.Load()>>20, peak()>>20)
			if got := peak(); got > memoryLimit/2 {
				t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit/2>>20)
			}
		})
	}
}

// TestMemoryOfLostClients: a client that comes, sends, and goes takes neither Stowaway's memory with what callers of its Pod do not read, nor
// another namespace's downloads, whose callers read slowly.
func TestMemoryOfLostClients(t *testing.T) {
	const turns, streams, downloads = 4, 60, 4 // 240 windows of 2 MiB are 480 MiB
	w, peak := newProcess(t)
	good, bad, carrier, attacker := identity(t), identity(t), identity(t), identity(t)
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}, {Pod: "q", Name: "flood/web", Key: attacker.Key}},
		tunnel.Route{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"p"}},
		tunnel.Route{ID: "bad", Name: "flood/bad", ClientKey: bad.Key, Port: 81, Pods: []string{"q"}})
	client, p, flood := w.send(good, 1<<30), w.mustPeer(carrier), w.mustPeer(attacker)
	watch(t, p).await(t, 20*time.Second, "good")
	table := watch(t, flood)
	read, b, open := 0, make([]byte, 32<<10), make([]*tunnel.Stream, downloads)
	download := func(d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for i, s := range open {
				n, err := 0, error(nil)
				if s == nil {
					open[i], err = p.Open(t.Context(), tunnel.PathOpen+"good", nil)
				} else {
					n, err = s.Read(b)
				}
				read += n
				switch {
				case err == nil:
				case closed(p.Gone(), client):
					clear(open)
					client, p = w.send(good, 1<<30), w.mustPeer(carrier)
					watch(t, p).await(t, 20*time.Second, "good")
				default:
					t.Fatalf("another namespace's download ends after %d KiB: %v", read>>10, err)
				}
			}
		}
	}
	download(time.Second)
	opened := 0
	for range turns {
		conn, gone := w.sendUntil(bad, 1<<30)
		table.await(t, 20*time.Second, "bad")
		for range streams {
			if s, err := flood.Open(t.Context(), tunnel.PathOpen+"bad", nil); err == nil { // what comes is not read
				opened++
				t.Cleanup(func() { _ = s.Close() })
			}
		}
		download(time.Second)
		_ = conn.Close()
		<-gone
		table.await(t, 20*time.Second, "-bad")
	}
	download(4 * time.Second)
	t.Logf("%d streams were opened; the downloads have %d MiB; %d MiB at most", opened, read>>20, peak()>>20)
	if got := peak(); got > memoryLimit {
		t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
	}
}
