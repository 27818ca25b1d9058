package metrics

import (
	"crypto/sha256"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/connlimit"
)

// MaxConnections is the bound of the metrics server: a Prometheus has one or two.
const MaxConnections = 64

// Bounds of the requests without a known token. Each makes the manager ask the API server about its token.
const (
	// strangersEvery and strangersBurst are for one host.
	strangersEvery = time.Second
	strangersBurst = 10
	// knownFor is how long a token is known after it got the metrics: longer than the interval of a scraper.
	knownFor = 10 * time.Minute
)

// Strangers bounds the requests of clients whose token has not got the metrics lately, for each host. So a client of another
// host never keeps a scraper out, whatever tokens it makes up. Next checks all tokens.
type Strangers struct {
	Next  http.Handler
	Clock clock.PassiveClock

	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time // the last metrics for a token
	hosts map[string]*rate.Limiter
}

// ServeHTTP implements http.Handler.
func (s *Strangers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	known, admitted := s.admit(token, hostOf(r))
	if !admitted {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests of this address have an unknown token: try again in a second", http.StatusTooManyRequests)
		return
	}
	if known {
		defer connlimit.Serving(r.Context())()
		connlimit.Sending(r.Context())
	}
	answer := &answer{ResponseWriter: w, status: http.StatusOK}
	s.Next.ServeHTTP(answer, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, token)
	if answer.status == http.StatusOK {
		s.known[token] = s.Clock.Now()
	}
}

// admit reports whether a token is known, and whether its request may reach Next.
func (s *Strangers) admit(token [sha256.Size]byte, host string) (known, admitted bool) {
	now := s.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known, s.hosts = map[[sha256.Size]byte]time.Time{}, map[string]*rate.Limiter{}
	}
	maps.DeleteFunc(s.known, func(_ [sha256.Size]byte, last time.Time) bool { return now.Sub(last) >= knownFor })
	if _, known = s.known[token]; known {
		return true, true
	}
	l := s.hosts[host]
	if l == nil {
		// A host whose bound is full again needs no memory.
		maps.DeleteFunc(s.hosts, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= strangersBurst })
		l = rate.NewLimiter(rate.Every(strangersEvery), strangersBurst)
		s.hosts[host] = l
	}
	return false, l.AllowN(now, 1)
}

// hostOf returns the address of the client without its port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// answer remembers its status.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}
