package carrier

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestNothingIsLeft ends connections at random places, on all sides, while routes and sessions come and go. No goroutine and no
// connection may be left.
func TestNothingIsLeft(t *testing.T) {
	rounds := 400
	if testing.Short() || raced {
		rounds = 100
	}
	server := func(name string) func(duplex) {
		plain := httpServer(name, &recorder{})
		return func(d duplex) {
			switch rand.IntN(5) {
			case 0: // ends in mid-response
				_, _ = d.Read(make([]byte, 100))
				_, _ = io.WriteString(d, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
			case 1: // ends at once
			case 2: // reads nothing for a while
				time.Sleep(20 * time.Millisecond)
			default:
				plain(d)
			}
		}
	}
	f := start(t, server("app"), func(id string, s duplex) { server(id)(s) }, byUser("a", "alice"), whole("b"))
	await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
	before := runtime.NumGoroutine()
	pieces := []string{get, alice, aliceSized, sizedBody, chunkedHead + chunks, aliceChunks + chunks, "\x16\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HT", "\x00", request("GET /", "Upgrade: x"), strings.Repeat("A", 100), chunkedHead + "zz"}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	changing := sync.WaitGroup{}
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				f.setRoutes(byUser("a", "alice"), whole("b"))
				return
			case <-time.After(30 * time.Millisecond):
			}
			switch i % 4 {
			case 0:
				f.setRoutes(dead(byUser("a", "alice")))
			case 1:
				f.setRoutes(byUser("a", "alice"), whole("b"))
			case 2:
				f.stowaway.endSession()
			case 3:
				f.setRoutes([]tunnel.TableRoute{whole("b")}...)
			}
		}
	})
	for range 16 {
		wg.Go(func() {
			for range rounds / 16 {
				c, err := net.Dial("tcp", f.pod.listener.Addr().String())
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(time.Duration(rand.IntN(400)) * time.Millisecond))
				for range rand.IntN(6) {
					p := pieces[rand.IntN(len(pieces))]
					_, _ = io.WriteString(c, p[:1+rand.IntN(len(p))])
					if rand.IntN(2) == 0 {
						_, _ = c.Read(make([]byte, 50))
					}
				}
				switch rand.IntN(3) {
				case 0:
					_ = c.(*net.TCPConn).SetLinger(0)
				case 1:
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	changing.Wait()
	await(t, "the end of all connections", func() bool { return len(f.all()) == 0 })
	f.awaitRoutes(t, 2)
	// The reconnected session has goroutines as the first one had.
	await(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before+6 })
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

// TestNoConnectionIsKept ends connections after random requests, while the client keeps each of its own. No connection may be left.
func TestNoConnectionIsKept(t *testing.T) {
	rounds := 400
	if testing.Short() || raced {
		rounds = 100
	}
	const untilClose = "HTTP/1.1 200 OK\r\n\r\nto the end"
	app := func(d duplex) {
		plain := httpServer("app", &recorder{})
		switch rand.IntN(6) {
		case 0:
			scripted(&recorder{}, []answer{{after: "\r\n\r\n", send: untilClose, end: "close"}})(d)
		case 1:
			scripted(&recorder{}, []answer{{after: "\r\n\r\n", send: reply("app"), end: "close"}})(d)
		case 2:
			scripted(&recorder{}, []answer{{after: "\r\n\r\n", send: untilClose[:10], end: "half"}})(d)
		default:
			plain(d)
		}
	}
	f := start(t, app, func(_ string, s duplex) { httpServer("cli", &recorder{})(s) }, byUser("a", "alice"))
	await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
	last, old := request("GET /", "Connection: close"), "GET / HTTP/1.0\r\n\r\n"
	pieces := []string{get, alice, alice, aliceSized, sizedBody, chunkedHead + chunks, last, old, request("GET /a", "X-User: alice", "Connection: close"), request("GET /", "Upgrade: x"), chunkedHead + "zz"}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range rounds / 16 {
				c, err := net.Dial("tcp", f.pod.listener.Addr().String())
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(time.Duration(100+rand.IntN(400)) * time.Millisecond))
				for range 1 + rand.IntN(4) {
					_, _ = io.WriteString(c, pieces[rand.IntN(len(pieces))])
					if rand.IntN(2) == 0 {
						_, _ = c.Read(make([]byte, 50))
					}
				}
				if rand.IntN(3) == 0 {
					cut := pieces[rand.IntN(len(pieces))]
					_, _ = io.WriteString(c, cut[:rand.IntN(len(cut))])
				}
				if rand.IntN(3) > 0 {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	await(t, "the end of all connections", func() bool { return len(f.all()) == 0 })
}
