package stowaway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of reports.
const (
	// maxReportBytes of one line.
	maxReportBytes = 512 << 10
	// reportPause is the shortest time between two lines of a carrier. Above, the carrier's stream fills and it waits.
	reportPause = 20 * time.Millisecond
	// forwardInterval is how often a client hears of its requests.
	forwardInterval = time.Second
	// forwardTimeout is how long a client may take to read its reports.
	forwardTimeout = 10 * time.Second
	// maxPending requests of one client. Above, the oldest ones are dropped: they are for people.
	maxPending = 8 * tunnel.MaxRequests
	// maxMethod and maxPath are the bytes that people see of a request's method and path.
	maxMethod, maxPath = 32, 1 << 10
	maxSteered         = 1 << 10
)

// readReports reads one Report per line until the carrier goes.
func (s *server) readReports(w http.ResponseWriter, r *http.Request, c *carrier) {
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, maxReportBytes)
	for lines.Scan() {
		var report tunnel.Report
		if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
			http.Error(w, "read a report: "+err.Error(), http.StatusBadRequest)
			return
		}
		s.addReport(c, &report)
		if !wait(r.Context(), reportPause) {
			return
		}
	}
	if lines.Err() != nil {
		http.Error(w, "read reports: "+lines.Err().Error(), http.StatusBadRequest)
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// addReport keeps what concerns the carrier's own Pod. The carrier parses what strangers send, so that it is not believed more.
func (s *server) addReport(c *carrier, r *tunnel.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carriers[c.pod] != c {
		return // not of the State any more
	}
	c.steered = r.Steered[:min(len(r.Steered), maxSteered)]
	c.counters = map[string]tunnel.Counters{}
	for id, counters := range r.Routes {
		if route := s.index.routes[id]; route != nil && route.pods[c.pod] {
			c.counters[id] = counters
		}
	}
	for _, request := range r.Requests[:min(len(r.Requests), tunnel.MaxRequests)] {
		route, session := s.index.routes[request.Route], s.sessions[request.Route]
		if route == nil || session == nil || !route.pods[c.pod] {
			continue
		}
		request.Pod = c.name
		request.Method, request.Path = cut(request.Method, maxMethod), cut(request.Path, maxPath)
		session.add(c.pod, request)
	}
}

// cut returns at most n bytes of s, in memory of its own.
func cut(s string, n int) string { return strings.Clone(s[:min(len(s), n)]) }

// pending is a request that its client has not heard of.
type pending struct {
	pod     string
	request tunnel.Request
}

// add keeps a request for the client. The caller holds the server's lock.
func (s *session) add(pod string, r tunnel.Request) {
	if len(s.pending) == maxPending {
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	s.pending = append(s.pending, pending{pod, r})
}

// forward sends the client new reports about its own route, until the session ends.
func (s *server) forward(ctx context.Context, session *session) {
	ticker := time.NewTicker(forwardInterval)
	defer ticker.Stop()
	sent := map[string]tunnel.Counters{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		reports := s.news(session, sent)
		if len(reports) == 0 {
			continue
		}
		// A client that does not want reports keeps its session.
		if err := session.post(ctx, reports); err != nil && ctx.Err() == nil {
			s.log.Debug("Forwarding reports failed", "route", session.name, "error", err)
		}
	}
}

// news returns a Report of each Pod with requests or counters that are not in sent, and adds these to sent.
func (s *server) news(session *session, sent map[string]tunnel.Counters) []*tunnel.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	route := s.index.routes[session.id]
	if route == nil {
		return nil
	}
	byPod := map[string]*tunnel.Report{}
	of := func(pod string) *tunnel.Report {
		if byPod[pod] == nil {
			byPod[pod] = &tunnel.Report{Pod: pod}
		}
		return byPod[pod]
	}
	for _, pod := range route.Pods {
		c := s.carriers[pod]
		if c == nil {
			delete(sent, pod)
			continue
		}
		if counters, ok := c.counters[session.id]; ok && counters != sent[pod] {
			sent[pod] = counters
			of(pod).Routes = map[string]tunnel.Counters{session.id: counters}
		}
	}
	for _, p := range session.pending {
		if route.pods[p.pod] {
			r := of(p.pod)
			r.Requests = append(r.Requests, p.request)
		}
	}
	session.pending = nil
	var reports []*tunnel.Report
	for _, pod := range route.Pods {
		if r := byPod[pod]; r != nil {
			r.Requests = r.Requests[max(0, len(r.Requests)-tunnel.MaxRequests):]
			reports = append(reports, r)
			delete(byPod, pod)
		}
	}
	return reports
}

// post sends one Report per line.
func (s *session) post(ctx context.Context, reports []*tunnel.Report) error {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	var body bytes.Buffer
	for _, r := range reports {
		if err := json.NewEncoder(&body).Encode(r); err != nil {
			return err
		}
	}
	r, err := tunnel.NewRequest(ctx, http.MethodPost, tunnel.PathReport, &body)
	if err != nil {
		return err
	}
	response, err := s.peer.Do(r)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxReason))
	return response.Body.Close()
}
