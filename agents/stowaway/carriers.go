package stowaway

import (
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const (
	// tableTimeout is how long a carrier may take to read a Table.
	tableTimeout = 10 * time.Second
	// A carrier gets a Table at once after a change. After tableBurst of them it gets one for each tablePause: a client may connect as
	// often as it likes, and the carriers of its route may be a thousand.
	tablePause = time.Second
	tableBurst = 4
)

// carrier is a carrier of the State, connected or not. The server's lock guards it.
type carrier struct {
	pod, name   string
	key         tunnel.PublicKey
	connections connections
	// changed is closed and replaced when the carrier's Table may differ.
	changed chan struct{}
	// The carrier's last report.
	steered, unserved []uint16
	counters          map[string]tunnel.Counters
	// pace of its reports in bytes.
	pace *rate.Limiter
}

func newCarrier(c tunnel.Carrier) *carrier {
	pace := rate.NewLimiter(rate.Limit(maxReport(0)), reportBurst*maxReport(0))
	return &carrier{pod: c.Pod, name: c.Name, key: c.Key, changed: make(chan struct{}), pace: pace}
}

// wake makes the carrier's Table anew. The caller holds the server's lock.
func (c *carrier) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// addCarrier returns nil if the State has no such carrier.
func (s *server) addCarrier(key tunnel.PublicKey, own *connection) *carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.carriers[s.index.carriers[key].Pod]
	if c == nil {
		return nil
	}
	c.connections.add(own, maxOfCarrier)
	s.log.Info("Connecting a carrier", "pod", c.name)
	return c
}

func (s *server) removeCarrier(c *carrier, own *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.connections.remove(own) {
		c.steered, c.unserved = nil, nil // unknown from now on
	}
	s.log.Info("Disconnecting a carrier", "pod", c.name)
}

// carrierHandler answers a carrier. Everything it may ask for concerns its own Pod.
func (s *server) carrierHandler(c *carrier, own *connection) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+tunnel.PathRoutes, single(func(w http.ResponseWriter, r *http.Request) { s.watchRoutes(w, r, c) }))
	mux.HandleFunc("POST "+tunnel.PathReport, single(func(w http.ResponseWriter, r *http.Request) { s.readReports(w, r, c, own) }))
	mux.HandleFunc("POST "+tunnel.PathOpen+"{id}", func(w http.ResponseWriter, r *http.Request) { s.open(w, r, c) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusNotFound, "carriers have no such request")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own.requests.Add(1)
		defer own.answered(w)
		if r.URL.Path != path.Clean(r.URL.Path) { // mux would answer with a body
			refuse(w, r, http.StatusNotFound, "carriers have no such request")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// refuse answers a carrier so that the request holds nothing any more.
func refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	_ = r.Body.Close() // frees the bytes that have arrived; the server would keep them until the handler returns
	// An error of JSON has numbers as they were sent.
	w.Header().Set(tunnel.HeaderReason, cut(reason, maxReason))
	w.WriteHeader(status)
}

// single serves one request of a connection at a time: each holds memory until it ends.
func single(h http.HandlerFunc) http.HandlerFunc {
	var busy atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if !busy.CompareAndSwap(false, true) {
			refuse(w, r, http.StatusConflict, "one stream of this kind at a time")
			return
		}
		defer busy.Store(false)
		h(w, r)
	}
}

// watchRoutes writes a Table now and after each change, at the pace of tablePause. A carrier that does not read one in time is
// disconnected.
func (s *server) watchRoutes(w http.ResponseWriter, r *http.Request, c *carrier) {
	_ = r.Body.Close() // a body, which it does not need, would stay as long as the stream
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	knowsLive := r.Header.Get(tunnel.HeaderLive) != ""
	pace := rate.NewLimiter(rate.Every(tablePause), tableBurst)
	for before := (tableSums{}); pace.Wait(r.Context()) == nil; {
		table, changed := s.table(c)
		if sums := table.sums(); sums != before {
			if out.SetWriteDeadline(time.Now().Add(s.tableTimeout)) != nil {
				return
			}
			if table.write(w, knowsLive && sums.routes == before.routes) != nil || out.Flush() != nil {
				return
			}
			// A deadline that passes between two Tables would end the stream, and with it the carrier's session.
			if out.SetWriteDeadline(time.Time{}) != nil {
				return
			}
			before = sums
		}
		table = nil // or a carrier would keep the routes of a State that is replaced
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// table returns the routes of a carrier's Pod, the oldest first, and a channel that is closed when they may have changed.
func (s *server) table(c *carrier) (table, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := make(table, 0, len(s.index.byPod[c.pod]))
	for _, r := range s.index.byPod[c.pod] {
		t = append(t, tableEntry{r, s.sessions[r.ID] != nil})
	}
	return t, c.changed
}
