package intercept

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestSizeOfReports: the largest Report of a Stowaway arrives. A line that takes hundreds of MiB in memory does not.
func TestSizeOfReports(t *testing.T) {
	var most tunnel.Report
	for range tunnel.MaxRequests {
		most.Requests = append(most.Requests, tunnel.Request{
			Time: time.Now(), Pod: strings.Repeat("p", 317), Route: strings.Repeat("r", 128), Port: 65535, Method: strings.Repeat("<", 32),
			Path: strings.Repeat("<", 256), Status: -1 << 63,
		})
	}
	line, err := json.Marshal(most)
	if err != nil {
		t.Fatal(err)
	}
	const entry = "{},"
	large := `{"requests":[` + strings.Repeat(entry, maxReportBytes/2/len(entry)) + "{}]}"
	for name, tt := range map[string]struct {
		body string
		want int // requests
	}{
		"the largest": {string(line) + "\n" + string(line) + "\n", 2 * tunnel.MaxRequests},
		"a large one": {string(line) + "\n" + large + "\n", tunnel.MaxRequests},
	} {
		got := 0
		l := Local{OnReport: func(r tunnel.Report) { got += len(r.Requests) }}
		l.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, tunnel.PathReport, strings.NewReader(tt.body)))
		if got != tt.want {
			t.Errorf("%s: %d requests, want %d", name, got, tt.want)
		}
	}
}

// TestCutRequest: a request that its caller has cut does not look whole to the developer's process.
func TestCutRequest(t *testing.T) {
	process, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := process.Accept()
			if err != nil {
				return
			}
			_, err = io.Copy(io.Discard, conn)
			ended <- err
			_ = conn.Close()
		}
	}()
	near, far := net.Pipe()
	local := &Local{Route: "mine", Address: process.Addr().String(), OnDial: func(error) {}, TrafficOf: func(string) *Traffic { return &Traffic{} }}
	go tunnel.Serve(t.Context(), near, local.Handler(), tunnel.Far)
	peer, err := tunnel.NewPeer(far, tunnel.Far)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for name, tt := range map[string]struct {
		end   func(*tunnel.Stream) error
		reset bool
	}{
		"whole": {(*tunnel.Stream).CloseWrite, false},
		"cut":   {(*tunnel.Stream).Close, true},
	} {
		stream, err := peer.Open(t.Context(), tunnel.PathOpen+"mine", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(stream, "half"); err != nil {
			t.Fatal(err)
		}
		_ = tt.end(stream)
		if err := <-ended; errors.Is(err, syscall.ECONNRESET) != tt.reset {
			t.Errorf("%s: the developer's process sees %v", name, err)
		}
		_ = stream.Close()
	}
}
