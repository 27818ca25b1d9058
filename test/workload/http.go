package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serve answers each request with the number of bytes in its query parameter "size".
func serve(f *flag.FlagSet, args []string) error {
	addr := f.String("listen", ":8080", "address")
	if err := f.Parse(args); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("size"))
		fmt.Fprintf(w, "%s\n%s", host, strings.Repeat("x", min(max(n, 0), 1<<20)))
	})
	return listen(*addr, mux)
}

// listen serves at an address until this process gets SIGTERM.
func listen(addr string, h http.Handler) error { return listenTLS(addr, nil, h) }

// listenTLS serves with TLS, if there is a configuration for it.
func listenTLS(addr string, config *tls.Config, h http.Handler) error {
	s := &http.Server{Addr: addr, Handler: h, TLSConfig: config, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
		_ = s.Close()
	}()
	l, err := net.Listen("tcp", addr) //nolint:noctx // it does not wait
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintf(os.Stderr, "listening on %s\n", l.Addr())
	serve := func() error { return s.Serve(l) }
	if config != nil {
		serve = func() error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// load sends requests to a server until SIGTERM, with a new connection for every tenth request by default.
func load(f *flag.FlagSet, args []string) error {
	url := f.String("url", "http://web/", "URL to request")
	every := f.Duration("every", 20*time.Millisecond, "pause between requests")
	perConnection := f.Int("per-connection", 10, "requests on one connection; a Service draws a Pod for each connection")
	if err := f.Parse(args); err != nil {
		return err
	}
	transport := &http.Transport{}
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	tick := time.NewTicker(*every)
	for i := 0; ; i++ {
		select {
		case <-c:
			return nil
		case <-tick.C:
		}
		if i%max(1, *perConnection) == 0 {
			transport.CloseIdleConnections()
		}
		res, err := client.Get(*url + "?size=" + strconv.Itoa(i%5*700)) //nolint:noctx // the client's time-out bounds it
		if err != nil {
			log.Print(err)
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// fetch sends one request and prints the body of the response.
func fetch(f *flag.FlagSet, args []string) error {
	url := f.String("url", "http://web/", "URL to request")
	method := f.String("method", http.MethodGet, "method of the request")
	header := f.String("header", "", "header of the request, as NAME=VALUE")
	if err := f.Parse(args); err != nil {
		return err
	}
	r, err := http.NewRequest(*method, *url, nil) //nolint:noctx // the client's time-out bounds it
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if name, value, ok := strings.Cut(*header, "="); ok {
		r.Header.Set(name, value)
	}
	res, err := (&http.Client{Timeout: 5 * time.Second}).Do(r)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(os.Stdout, res.Body); err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	return nil
}
