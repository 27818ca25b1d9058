// Package processes tests that packets name the processes of their Pod, with captures by BPF programs as a probe opens them.
package processes

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/sockets"
)

func TestMain(m *testing.M) { os.Exit(sockets.Run(m)) }

// world is a Pod with one capture at a time.
type world struct {
	*sockets.World
	t    *testing.T
	path string // the capture's file
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{World: sockets.New(t), t: t}
}

// start starts a capture whose packets name processes. The result ends it.
func (w *world) start() (stop func() capture.Result) {
	w.t.Helper()
	return w.startWith("eth0", w.Processes())
}

// startWith is start on an interface, for the processes of a Pod.
func (w *world) startWith(iface string, p *backend.Processes) (stop func() capture.Result) {
	w.t.Helper()
	_, end := w.open(iface, p)
	return func() capture.Result {
		w.t.Helper()
		r := end()
		if r.Err != nil {
			w.t.Fatal(r.Err)
		}
		if p := r.Account.Processes; p == nil || p.Message != "" {
			w.t.Fatalf("processes were not named: %+v", p)
		}
		return r
	}
}

// open is startWith for a capture that may end in any way.
func (w *world) open(iface string, p *backend.Processes) (c capture.Capture, end func() capture.Result) {
	w.t.Helper()
	dir := w.t.TempDir()
	w.path = filepath.Join(dir, "named.pcapng")
	c, err := capture.New(capture.KindBPF).Open(&capture.Config{NetNS: w.Target, Dir: dir, Base: "named", Interfaces: []string{iface}, Processes: p})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	done := make(chan capture.Result, 1)
	go func() { done <- c.Run(ctx) }()
	return c, func() capture.Result {
		cancel()
		return <-done
	}
}

// awaitLast waits until the last packet of a port has a reason.
func (w *world) awaitLast(port uint16, reason pcapng.ProcessReason) {
	w.t.Helper()
	var s *sockets.Score
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if s = w.Scores(w.path)[port]; s != nil && s.Last != nil && s.Last.Reason == reason {
			return
		}
	}
	w.t.Errorf("port %d: the last packet is not %q: %+v", port, reason, s)
}
