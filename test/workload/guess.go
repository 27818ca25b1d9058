package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// guess asks https addresses again and again, with another made-up token each time. It prints every second how many answers
// it got, and how many of them were 429.
func guess(fs *flag.FlagSet, args []string) error {
	n := fs.Int("n", 16, "requests to each address at a time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: *n, //nolint:gosec // the attacker trusts anyone
	}}
	var mu sync.Mutex
	var answers, refused int
	for _, address := range fs.Args() {
		for i := range *n {
			go func() {
				for j := 0; ctx.Err() == nil; j++ {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
					if err != nil {
						panic(err)
					}
					req.Header.Set("Authorization", fmt.Sprintf("Bearer made-up-%d-%d", i, j))
					resp, err := client.Do(req)
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					answers++
					if resp.StatusCode == http.StatusTooManyRequests {
						refused++
					}
					mu.Unlock()
				}
			}()
		}
	}
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			mu.Lock()
			fmt.Printf("answers %d refused %d\n", answers, refused)
			mu.Unlock()
		}
	}
}
