package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	// maxAnswer bounds the part of an answer that a flooder reads for the name of what it created.
	maxAnswer = 1 << 20
)

// flood repeats a request on many connections, each time as soon as the last one is answered. It prints every second how
// many answers had each HTTP status; 0 means no answer. Its argument is a path of the cluster's API server, which it asks as the
// Pod's ServiceAccount.
func flood(fs *flag.FlagSet, args []string) error {
	f := &flooder{answers: map[int]int{}}
	fs.IntVar(&f.connections, "n", 64, "connections")
	fs.StringVar(&f.body, "body", "", "creates this object; without it the request reads. "+
		"NUMBER, DIGIT and HASH stand for values that differ from request to request, PAD for -pad bytes")
	pad := fs.Int("pad", 0, "bytes that PAD stands for")
	fs.BoolVar(&f.replace, "replace", false, "when an object is forbidden, delete the newest one of the same connection, but not its first")
	tokens := fs.String("tokens", "", "comma-separated results tokens, one for each connection in turn")
	if err := fs.Parse(args); err != nil {
		return err
	}
	account, err := os.ReadFile(accountToken)
	if err != nil {
		return fmt.Errorf("read the token of the Pod's ServiceAccount: %w", err)
	}
	f.body = strings.ReplaceAll(f.body, "PAD", strings.Repeat("x", *pad))
	f.account, f.tokens = string(account), strings.Split(*tokens, ",")
	f.url = "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")) + fs.Arg(0)
	f.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: f.connections,
		// HTTP/1.1, so that each request has a connection of its own. The flooder does not care who answers.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for i := range f.connections {
		go f.repeat(ctx, i)
	}
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			fmt.Println(f.count())
		}
	}
}

type flooder struct {
	client             *http.Client
	url, account, body string
	tokens             []string
	connections        int
	replace            bool
	mu                 sync.Mutex
	answers            map[int]int
}

// repeat sends requests on one connection.
func (f *flooder) repeat(ctx context.Context, connection int) {
	var own []string
	for number := connection; ctx.Err() == nil; number += f.connections {
		method := http.MethodGet
		if f.body != "" {
			method = http.MethodPost
		}
		status, name, err := f.request(ctx, method, f.url, f.bodyOf(number), f.tokens[connection%len(f.tokens)])
		switch {
		case err != nil:
			time.Sleep(100 * time.Millisecond) // do not spin while no connection can be made
		case !f.replace:
		case status == http.StatusCreated:
			own = append(own, name)
		case status == http.StatusForbidden && len(own) > 1:
			_, _, _ = f.request(ctx, http.MethodDelete, f.url+"/"+own[len(own)-1], "", "")
			own = own[:len(own)-1]
		}
	}
}

func (f *flooder) bodyOf(number int) string {
	return strings.NewReplacer(
		"NUMBER", strconv.Itoa(1000+number%60000),
		"DIGIT", strconv.Itoa(number%10),
		"HASH", fmt.Sprintf("%064x", number),
	).Replace(f.body)
}

// request returns the status of the answer, or 0, and the name of the object in it. It reads a stream to its end.
func (f *flooder) request(ctx context.Context, method, url, body, token string) (status int, name string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+f.account)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("X-Sonde-Token", token)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.add(0)
		return 0, "", err
	}
	defer resp.Body.Close()
	f.add(resp.StatusCode) // before the body, because a stream stays open
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || resp.StatusCode != http.StatusCreated {
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, "", nil
	}
	var object struct {
		Metadata struct{ Name string }
	}
	err = json.Unmarshal(b, &object)
	return resp.StatusCode, object.Metadata.Name, err
}

func (f *flooder) add(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[status]++
}

// count lists the answers so far by status, such as "201: 12, 403: 7".
func (f *flooder) count() string {
	f.mu.Lock()
	answers := maps.Clone(f.answers)
	f.mu.Unlock()
	var parts []string
	for status := range 600 {
		if n := answers[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d: %d", status, n))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none yet")
}
