//go:build !race

package stowaway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// flood returns carriers of a namespace.
func flood(t *testing.T, pods int) (carriers []tunnel.Carrier, ids []*tunnel.Identity, uids []string) {
	t.Helper()
	for n := range pods {
		ids, uids = append(ids, identity(t)), append(uids, fmt.Sprint("q", n))
		carriers = append(carriers, tunnel.Carrier{Pod: uids[n], Name: fmt.Sprint("flood/web", n), Key: ids[n].Key})
	}
	return carriers, ids, uids
}

// TestMemoryOfReports: carriers of a namespace that send the largest reports on several connections, and bodies that nobody reads, do not
// take Stowaway's memory. None of them has a stream. Meanwhile another namespace's stream works.
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
			w.connect(good, "good")
			p := w.mustPeer(carrier)
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
				if got, err := say(t, p, "good", "still here"); err != nil {
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
