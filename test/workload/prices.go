package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// wait is the pause between attempts to read the list of prices, and attempts is their number.
	wait     = 50 * time.Millisecond
	attempts = 4
)

// prices answers with a price, but slowly, and does not say why. For each request it connects to a cache that may not
// exist, and retries to read a list of prices, at $PRICES, that may have another name. It is the slow service of
// docs/guide/slow-call.md.
func prices(f *flag.FlagSet, args []string) error {
	addr := f.String("listen", ":8080", "address")
	if err := f.Parse(args); err != nil {
		return err
	}
	path := os.Getenv("PRICES")
	var cache netip.AddrPort
	if addr := os.Getenv("CACHE"); addr != "" {
		if err := cache.UnmarshalText([]byte(addr)); err != nil || !cache.Addr().Is4() {
			return fmt.Errorf("CACHE=%s: want an IPv4 address and a port, or nothing", addr)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/price", func(w http.ResponseWriter, _ *http.Request) {
		if cache.IsValid() {
			_ = askCache(cache) // like most caches: the service answers without it
		}
		_, _ = w.Write(list(path))
	})
	return listen(*addr, mux)
}

// askCache connects to a cache like most programs that are not written in Go: the call blocks and returns the error.
func askCache(cache netip.AddrPort) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	return syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(cache.Port()), Addr: cache.Addr().As4()})
}

// list reads the list of prices and falls back to a built-in one.
func list(path string) []byte {
	for range attempts {
		if b, err := os.ReadFile(path); err == nil {
			return b
		}
		time.Sleep(wait)
	}
	return []byte(`{"tea": 3}`)
}

// ask sends count requests, one after the other, and prints how long the answers took.
func ask(f *flag.FlagSet, args []string) error {
	url := f.String("url", "http://web/", "URL to request")
	count := f.Int("count", 20, "number of requests")
	if err := f.Parse(args); err != nil {
		return err
	}
	// A new Service takes a moment to answer.
	last, err := get(*url)
	for ready := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(ready); last, err = get(*url) {
		time.Sleep(wait)
	}
	took := make([]time.Duration, 0, max(1, *count))
	for range max(1, *count) {
		start := time.Now()
		if last, err = get(*url); err != nil {
			return err
		}
		took = append(took, time.Since(start).Round(100*time.Microsecond))
	}
	slices.Sort(took)
	fmt.Printf("%d answers: median %s, slowest %s; the last: %s\n", len(took), took[len(took)/2], took[len(took)-1], last)
	return nil
}

// get returns the body of a server's answer.
func get(url string) ([]byte, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	res, err := client.Get(url) //nolint:noctx // the client's time-out bounds it
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return b, nil
}
