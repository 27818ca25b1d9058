package main

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMethodOfGet(t *testing.T) {
	got := make(chan string, 2)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Method }))
	defer s.Close()
	for want, args := range map[string][]string{"GET": nil, "POST": {"-method", "POST"}} {
		if err := fetch(flag.NewFlagSet("get", flag.ContinueOnError), append(args, "-url", s.URL)); err != nil {
			t.Fatal(err)
		}
		if method := <-got; method != want {
			t.Errorf("%v: method %s", args, method)
		}
	}
}
