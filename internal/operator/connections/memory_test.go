package connections

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
)

// shortHeaders are n bytes of the shortest lines, each with another name: net/http keeps the most memory for these.
func shortHeaders(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(string([]byte{letters[i%26], letters[i/26%36], letters[i/26/36%36], ':', '\n'}))
	}
	return b.String()
}

// TestHeadersTakeABoundedMemory: hundreds of connections with headers that never end take no more of the heap than connlimit.MaxHeld
// allows, and clients of another host get their answers meanwhile.
func TestHeadersTakeABoundedMemory(t *testing.T) {
	const attacks, most, unbounded = 500, 40 << 20, 48 << 20
	c := certs.NewManager(fake.NewClientBuilder().Build(), "sonde-system", clock.RealClock{})
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &Server{Address: "127.0.0.1:0", GetCertificate: c.GetCertificate, MaxConnections: 1024, Handler: http.NotFoundHandler()}
	go func() { _ = s.Start(t.Context()) }()
	to := listening(t, s)
	dial := func(from string) net.Conn {
		t.Helper()
		d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}, Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	headers := "GET / HTTP/1.1\nHost: x\n" + shortHeaders(connlimit.HeaderBytes-100)
	attack := func(n int) (taken func() int64, closed *atomic.Int32) {
		t.Helper()
		all := make([]net.Conn, 0, n)
		for i := range n {
			all = append(all, dial(fmt.Sprint("127.0.1.", 2+i%3)))
		}
		before, closed := heap(), &atomic.Int32{}
		wait(t, "the end of what earlier tests have left", func() bool {
			was := before
			time.Sleep(50 * time.Millisecond)
			before = heap()
			return was-before < 64<<10
		})
		for _, conn := range all {
			go func() {
				_, _ = io.WriteString(conn, headers)
				_, _ = io.Copy(io.Discard, conn)
				closed.Add(1)
			}()
		}
		return func() int64 { return heap() - before }, closed
	}
	const few = 20
	var each int64
	control, _ := attack(few) // before the others, whose end would free memory meanwhile
	wait(t, "the control: as much for each as the attack counts on", func() bool {
		each = control() / few
		return each*attacks > unbounded
	})
	taken, closed := attack(attacks)
	wait(t, "the bound", func() bool { return closed.Load() >= attacks-connlimit.MaxHeld/connlimit.HeaderBytes })
	took := taken()
	request := func(from, header string, want int) {
		t.Helper()
		conn := dial(from)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+header+"\r\n\r\n")
		if b, _ := io.ReadAll(conn); !strings.HasPrefix(string(b), fmt.Sprint("HTTP/1.1 ", want)) {
			t.Errorf("%s beside the attack: got %.40q, want %d", from, b, want)
		}
	}
	request("127.0.0.9", "Authorization: Bearer "+strings.Repeat("x", 7<<10), http.StatusNotFound)
	request("127.0.1.2", "Accept: */*", http.StatusNotFound) // the attacker's host
	request("127.0.0.9", "Authorization: Bearer "+strings.Repeat("x", 9<<10), http.StatusRequestHeaderFieldsTooLarge)
	t.Logf("%d connections with %d bytes of headers take %d KiB; without a bound %d KiB each", attacks, len(headers), took>>10, each>>10)
	if took > most {
		t.Errorf("they take %d KiB, want at most %d", took>>10, most>>10)
	}
}

// wait waits for a condition.
func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s never came", what)
		}
	}
}
