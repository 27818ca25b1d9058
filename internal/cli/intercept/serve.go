package intercept

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of the connections to the developer's process and of reports.
const (
	dialTimeout    = 5 * time.Second
	maxReportBytes = 4 << 20
	// maxReportLine in bytes is more than one Report has. In memory a line takes up to some 40 times its size.
	maxReportLine = 128 << 10
)

// Local answers the streams of one intercept on the developer's machine.
type Local struct {
	// Route is the UID of the InterceptRequest. Streams of others are refused.
	Route string
	// Address of the developer's process, host:port.
	Address string
	// OnReport is called for each Report.
	OnReport func(tunnel.Report)
	// OnDial is called for each stream with why nothing takes it at Address; nil if something does.
	OnDial func(error)
	// TrafficOf returns the counts of a Pod, namespace/name.
	TrafficOf func(pod string) *Traffic
	// OnCut is called with how many streams Relieve has just cut. Relieve waits until it returns.
	OnCut func(streams int)

	reading sync.Mutex // of a stream of reports

	mu   sync.Mutex
	held map[*held]struct{}
}

// Handler returns what answers Stowaway.
func (l *Local) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+tunnel.PathOpen+"{id}", l.open)
	mux.HandleFunc("POST "+tunnel.PathReport, l.report)
	return mux
}

func (l *Local) open(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != l.Route {
		http.Error(w, "this client has another route", http.StatusNotFound)
		return
	}
	traffic := l.TrafficOf(r.Header.Get(tunnel.HeaderPod))
	conn, err := l.dial(r.Context())
	if err != nil && r.Context().Err() != nil {
		http.Error(w, err.Error(), http.StatusBadGateway) // without an answer, the carrier would take the stream for open
		return                                            // the stream was cut meanwhile, which says nothing about the process
	}
	l.OnDial(err)
	if err != nil {
		traffic.failed.Add(1)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()
	stream, err := tunnel.Accept(w, r)
	if err != nil {
		_ = conn.SetLinger(0) // the stream was cut, so the process must not see a regular end
		return
	}
	_, _, _ = tunnel.Join(&counted{Duplex: l.hold(stream, conn), traffic: traffic}, conn) // the other side sees a stream that was cut
}

func (l *Local) dial(ctx context.Context) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", l.Address)
	if err != nil {
		return nil, fmt.Errorf("nothing answers at %s: %w", l.Address, err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is no TCP address", l.Address)
	}
	return tcp, nil
}

// Check returns an error if nothing listens at the address.
func (l *Local) Check(ctx context.Context) error {
	conn, err := l.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// report reads one Report per line. Stowaway sends one stream of them at a time, unless it was taken over: each takes memory.
func (l *Local) report(w http.ResponseWriter, r *http.Request) {
	if !l.reading.TryLock() {
		http.Error(w, "one stream of reports at a time", http.StatusConflict)
		return
	}
	defer l.reading.Unlock()
	lines := bufio.NewScanner(http.MaxBytesReader(w, r.Body, maxReportBytes))
	for lines.Buffer(nil, maxReportLine); lines.Scan(); {
		var report tunnel.Report
		if json.Unmarshal(lines.Bytes(), &report) != nil {
			return // a Stowaway of another version: reports are for people
		}
		l.OnReport(report)
	}
}
