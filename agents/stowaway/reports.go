package stowaway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of reports.
const (
	// requestBytes and routeBytes are the most that one line has for a request, and for the counters and the port of a route. In JSON a
	// byte of a path may be six, and an ID has up to 128 bytes.
	requestBytes = 2304
	routeBytes   = 512
	lineBytes    = 1 << 10 // the rest of it
	// reportBurst lines of a carrier may come at once. A carrier sends one each second.
	reportBurst = 8
	// namespacePace is how many bytes of reports are parsed each second of the carriers of a namespace. What is above is dropped: a
	// carrier that is busy reports the same counters, or newer ones, a second later.
	namespacePace = 4 << 20
	// forwardInterval is how often a client hears of its requests.
	forwardInterval = time.Second
	// forwardTimeout is how long a client may take to read its reports.
	forwardTimeout = 10 * time.Second
	// maxPending requests of one client. Above, the oldest ones are dropped: they are for people.
	maxPending = 8 * tunnel.MaxRequests
	// maxMethod and maxPath are the bytes that carriers send of a request's method and path.
	maxMethod, maxPath = 32, 256
)

// maxReport returns the bytes that a report of a Pod with so many routes may have.
func maxReport(routes int) int {
	return lineBytes + tunnel.MaxRequests*requestBytes + routes*routeBytes
}

// readReports reads one Report per line until the carrier goes. A carrier that sends more than carriers do is refused. To pause instead
// would keep the window of its stream full.
func (s *server) readReports(w http.ResponseWriter, r *http.Request, c *carrier, own *connection) {
	from := bufio.NewReader(r.Body)
	for {
		line, refused := s.readReport(from, c, own)
		switch {
		case refused != nil:
			refuse(w, r, refused.Status, refused.Reason)
			return
		case line == nil:
			return
		case !s.affords(c, len(line)):
			continue
		}
		var report tunnel.Report
		if err := json.Unmarshal(line, &report); err != nil {
			refuse(w, r, http.StatusBadRequest, "read a report: "+err.Error())
			return
		}
		s.addReport(c, &report)
	}
}

// readReport returns the next line, or nil at the end.
func (s *server) readReport(from *bufio.Reader, c *carrier, own *connection) (line []byte, refused *tunnel.Refused) {
	defer own.line.Store(0)
	for {
		part, err := from.ReadSlice('\n')
		most := s.maxReportOf(c)
		if len(line)+len(part) > most {
			return nil, &tunnel.Refused{Status: http.StatusBadRequest, Reason: fmt.Sprintf("read reports: a line has more than %d bytes", most)}
		}
		c.pace.SetLimit(rate.Limit(most))
		c.pace.SetBurst(reportBurst * most)
		if len(part) > 0 && !c.pace.AllowN(time.Now(), len(part)) {
			return nil, &tunnel.Refused{Status: http.StatusTooManyRequests, Reason: "read reports: more than one each second"}
		}
		line = append(line, part...)
		own.line.Store(int64(cap(line)))
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, nil // the carrier has gone
		}
	}
}

func (s *server) maxReportOf(c *carrier) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maxReport(len(s.index.byPod[c.pod]))
}

// affords reports whether a line of the carrier is parsed. Each costs as much as lineBytes at least.
func (s *server) affords(c *carrier, line int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pace := s.reading[namespaceOf(c.name)]
	return pace != nil && pace.AllowN(time.Now(), max(line, lineBytes))
}

// addReport keeps what concerns the carrier's own Pod. The carrier parses what strangers send, so that it is not believed more.
func (s *server) addReport(c *carrier, r *tunnel.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carriers[c.pod] != c {
		return // not of the State any more
	}
	c.steered, c.unserved, c.counters = s.index.ofPod(c.pod, r.Steered, r.Unserved, r.Routes)
	for _, request := range r.Requests[:min(len(r.Requests), tunnel.MaxRequests)] {
		route, session := s.index.routes[request.Route], s.sessions[request.Route]
		if route == nil || session == nil || !route.pods[c.pod] {
			continue
		}
		request.Pod, request.Route = c.name, route.ID
		request.Method, request.Path = cut(request.Method, maxMethod), cut(request.Path, maxPath)
		session.add(c.pod, request)
	}
}

// cut returns at most n bytes of s, in memory of its own.
func cut(s string, n int) string { return strings.Clone(s[:min(len(s), n)]) }

// pending is a request that its client does not know of.
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
