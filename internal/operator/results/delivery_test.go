package results

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
)

// sink keeps the Events that a real recorder writes.
type sink struct {
	mu      sync.Mutex
	created []*eventsv1.Event
	patched int
}

func (s *sink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = append(s.created, e)
	return e, nil
}

func (s *sink) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }

func (s *sink) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patched++
	return e, nil
}

func (s *sink) notes() (created []string, patched int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.created {
		created = append(created, e.Note)
	}
	return created, s.patched
}

// TestEachDownloadHasAnEvent: the recorder merges Events, but none that names another file, part, outcome or user. What
// is too much for Events is counted in one that says so.
func TestEachDownloadHasAnEvent(t *testing.T) {
	w := newWorld(t)
	s := &sink{}
	broadcaster := events.NewBroadcaster(s)
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.handler.Recorder = broadcaster.NewRecorder(w.client.Scheme(), "sonde-results")
	w.handler.events = eventlimit.New(testingclock.NewFakePassiveClock(time.Now()))
	served := func(file, user string, from, n int64, err error) {
		d := delivery{h: w.handler, pod: "web-1", name: file, from: from, log: logr.Discard(), s: session{
			capture: w.capture(), access: w.access(user, nil), who: access.Requester{Username: user},
		}}
		_ = d.end(t.Context(), n, err, outcomeWhole)
	}
	for i := range 5 {
		served(fmt.Sprintf("web-%d.pcapng", i), "alice", 0, 1000, nil)
	}
	served("web-0.pcapng", "bob", 0, 1000, nil)
	served("web-0.pcapng", "alice", 0, 400, errors.New("gone"))
	served("web-0.pcapng", "alice", 400, 600, nil)
	want := []string{
		"alice read 1000 bytes of web-0.pcapng of Pod web-1 (whole)", "alice read 1000 bytes of web-1.pcapng", "alice read 1000 bytes of web-2.pcapng",
		"alice read 1000 bytes of web-3.pcapng", "alice read 1000 bytes of web-4.pcapng", "bob read 1000 bytes of web-0.pcapng",
		"alice read 400 bytes of web-0.pcapng of Pod web-1 (broken off)", "alice read 600 bytes from byte 400 on of web-0.pcapng",
	}
	if !eventually(func() bool { created, _ := s.notes(); return len(created) >= len(want) }) {
		t.Error("an Event is missing")
	}
	created, patched := s.notes()
	for _, note := range want {
		if n := strings.Count(strings.Join(created, "\n"), note); n != 1 {
			t.Errorf("%d Events %q in %q", n, note, created)
		}
	}
	if patched != 0 {
		t.Errorf("%d were merged", patched)
	}

	for i := range int64(3 * eventlimit.Burst) {
		served("web-0.pcapng", "mallory", i, 1, nil)
	}
	if !eventually(func() bool { created, patched := s.notes(); return len(created) >= eventlimit.Burst+1 && patched > 0 }) {
		t.Error("no Event says that there are more downloads")
	}
	if created, _ := s.notes(); len(created) != eventlimit.Burst+1 || !strings.Contains(strings.Join(created, "\n"), "More results were read") {
		t.Errorf("%d Events, want %d and one that says that there were more", len(created), eventlimit.Burst)
	}
	if !w.handler.events.Allow("elsewhere") {
		t.Error("the downloads of one namespace take the Events of another")
	}
}

// TestEventNotesFit: the API server refuses a longer note.
func TestEventNotesFit(t *testing.T) {
	w := newWorld(t)
	d := delivery{h: w.handler, pod: strings.Repeat("p", 253), name: strings.Repeat("f", 255), from: 1 << 62, log: logr.Discard(), s: session{
		capture: w.capture(), access: w.access("a", nil), who: access.Requester{Username: strings.Repeat("u", 5000)},
	}}
	_ = d.end(t.Context(), 1<<62, http.ErrAbortHandler, outcomeWhole)
	if note := <-w.events.Events; len(note) > 1024 {
		t.Errorf("a note of %d bytes", len(note))
	}
}
