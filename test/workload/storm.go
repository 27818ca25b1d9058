package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// stormTimeout is how long one request may take.
	stormTimeout = 3 * time.Second
	// stormShare is one of how many requests has the header. These take a longer way, which costs this machine more.
	stormShare = 20
	// stormSlow is how long a request may take on a machine that is not overloaded.
	stormSlow = 50 * time.Millisecond
)

// stormRun is a run of requests, in the order of their start, that had the same result. A new one begins at -split.
type stormRun struct {
	// First and Last say when the first and the last of them started, in nanoseconds since 1970.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Ended says when the first of them ended.
	Ended int64 `json:"ended"`
	Count int   `json:"count"`
	// Slow is how many of them took longer than stormSlow.
	Slow int `json:"slow,omitempty"`
	// Answer is the first line of the body, or "error: " and why there is none.
	Answer string `json:"answer"`
}

// storm sends requests at a rate, each on a connection of its own, and prints what became of them as a JSON array of stormRun.
// Some requests have the header, and these are reported in an array of their own.
func storm(f *flag.FlagSet, args []string) error {
	addr := f.String("to", "web:80", "address of the server")
	header := f.String("header", "", "header of every 20th request, as NAME: VALUE")
	rate := f.Int("rate", 1000, "connections for each second")
	lasts := f.Duration("for", 3*time.Second, "how long")
	after := f.Duration("after", 0, "how long to wait first")
	split := f.Duration("split", 0, "begin new runs after that time")
	if err := f.Parse(args); err != nil {
		return err
	}
	request := "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n"
	requests := [2]string{request + "\r\n", request + *header + "\r\n\r\n"}
	kind := func(i int) int {
		if i%stormShare == stormShare-1 {
			return 1
		}
		return 0
	}
	count := int(lasts.Seconds() * float64(*rate))
	type result struct {
		started, ended int64
		answer         string
	}
	results := make([]result, count)
	var all sync.WaitGroup
	time.Sleep(*after)
	begin := time.Now()
	for i := range results {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(*rate))))
		all.Go(func() {
			started := time.Now().UnixNano()
			answer := one(*addr, requests[kind(i)])
			results[i] = result{started, time.Now().UnixNano(), answer}
		})
	}
	all.Wait()
	var runs [len(requests)][]stormRun
	at := begin.Add(*split).UnixNano()
	for i, r := range results {
		to := &runs[kind(i)]
		if n := len(*to); n == 0 || (*to)[n-1].Answer != r.answer || (*to)[n-1].First < at && r.started >= at {
			*to = append(*to, stormRun{First: r.started, Ended: r.ended, Answer: r.answer})
		}
		last := &(*to)[len(*to)-1]
		last.Last, last.Ended, last.Count = r.started, min(last.Ended, r.ended), last.Count+1
		if r.ended-r.started > int64(stormSlow) {
			last.Slow++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(runs)
}

// one returns who answered a request.
func one(addr, request string) string {
	c, err := net.DialTimeout("tcp", addr, stormTimeout) //nolint:noctx // bounded
	if err != nil {
		return "error: connect: " + kindOf(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(stormTimeout))
	if _, err := io.WriteString(c, request); err != nil {
		return "error: write: " + kindOf(err)
	}
	got, err := io.ReadAll(c)
	head, body, ok := bytes.Cut(got, []byte("\r\n\r\n"))
	if err != nil || !ok || !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		status, _, _ := strings.Cut(string(head), "\r\n")
		return fmt.Sprintf("error: read %q: %s", status, kindOf(err))
	}
	who, _, _ := strings.Cut(string(body), "\n")
	return who
}

// kindOf is the end of an error's text, without addresses.
func kindOf(err error) string {
	if err == nil {
		return "cut off"
	}
	s := err.Error()
	return s[strings.LastIndex(s, ": ")+1:]
}
