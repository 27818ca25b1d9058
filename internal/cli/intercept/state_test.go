package intercept

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestReportsOfManyPods: a Stowaway that was taken over does not fill the memory of a developer's machine with counters.
func TestReportsOfManyPods(t *testing.T) {
	s := NewState(&v1alpha1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, time.Unix(0, 0))
	add := func(pod string, matched uint64) {
		s.Add(&tunnel.Report{Pod: pod, Routes: map[string]tunnel.Counters{"a": {Matched: matched}}})
	}
	for n := range 2 * maxPods {
		add(fmt.Sprint("pod", n), 1)
	}
	add("pod1", 2)
	if len(s.counters) != maxPods || s.counters["pod1"].Matched != 2 {
		t.Errorf("counters of %d Pods, want %d; pod1: %+v", len(s.counters), maxPods, s.counters["pod1"])
	}
	clear(s.counters)
	if add(strings.Repeat("x", maxUID+1), 1); len(s.counters) != 0 {
		t.Error("a Pod with a longer UID than Pods have is counted")
	}
}

func TestOneStreamOfReports(t *testing.T) {
	reported := make(chan string)
	handler := (&Local{OnReport: func(r tunnel.Report) { reported <- r.Pod }}).Handler()
	post := func(body io.Reader) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, tunnel.PathReport, body))
		return answer.Code
	}
	body, in := io.Pipe()
	first := make(chan int)
	go func() { first <- post(body) }()
	go func() { _, _ = io.WriteString(in, `{"pod":"one"}`+"\n") }()
	if got := <-reported; got != "one" {
		t.Errorf("reported %q", got)
	}
	if got := post(strings.NewReader("")); got != http.StatusConflict {
		t.Errorf("a second stream at the same time: %d", got)
	}
	_ = in.Close()
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first stream: %d", got)
	}
	if got := post(strings.NewReader("")); got != http.StatusOK {
		t.Errorf("a stream after it: %d", got)
	}
}
