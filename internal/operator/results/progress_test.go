package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// lines reads a progress stream.
type lines struct {
	t      *testing.T
	scan   *bufio.Scanner
	blanks int
}

func (w *world) stream() *lines {
	w.t.Helper()
	resp := w.get(progress, nil)
	if resp.code != http.StatusOK || resp.header.Get("Content-Type") != "application/x-ndjson" {
		w.t.Fatalf("got %d %s", resp.code, resp.header.Get("Content-Type"))
	}
	return &lines{t: w.t, scan: bufio.NewScanner(resp.body)}
}

// next line that is no heartbeat; ok is false at the end of the stream.
func (l *lines) next() (line Line, ok bool) {
	l.t.Helper()
	for l.scan.Scan() {
		if len(l.scan.Bytes()) == 0 {
			l.blanks++
			continue
		}
		if err := json.Unmarshal(l.scan.Bytes(), &line); err != nil {
			l.t.Fatal(err)
		}
		return line, true
	}
	return Line{}, false
}

// want fails the test unless the next line says phase and packets of pod.
func (l *lines) want(pod string, phase sondev1.Phase, packets int64) Line {
	l.t.Helper()
	got, ok := l.next()
	var n int64
	if got.Account != nil {
		n = got.Account.Packets
	}
	if !ok || got.Pod != pod || got.Phase != phase || n != packets {
		l.t.Fatalf("got %+v with %d packets (more: %t, %v), want %s %s with %d", got, n, ok, l.scan.Err(), pod, phase, packets)
	}
	return got
}

func counted(state account.State, packets int64) account.Account {
	return account.Account{State: state, Complete: state == account.StateDone, Counts: account.Counts{Seen: packets, Packets: packets}}
}

func end(pc *sondev1.PacketCapture) {
	pc.Status.Phase = sondev1.PhaseIncomplete
	pc.Status.Pods = []sondev1.PodResult{
		{
			UID: "pod-1", Name: "web-1", Node: "n1", Phase: sondev1.PhaseCompleted, Reason: "Duration", Packets: 7, Bytes: 700, Engine: "ring", EngineMessage: "no other",
			Truncated: 1, Dropped: sondev1.Dropped{Kernel: 1, Ring: 2, Writer: 3}, Files: []sondev1.ResultFile{{Name: "a.pcapng", Bytes: 900}},
		},
		{UID: "pod-2", Name: "web-2", Phase: sondev1.PhaseFailed, Reason: "NodeLost", Message: "no answer"},
	}
}

func TestProgressFromFirstPacketToLast(t *testing.T) {
	w := newWorld(t)
	l := w.stream()
	l.want("web-1", sondev1.PhaseCapturing, 0) // from the status
	w.keeper.accounts <- counted(account.StateCapturing, 3)
	if got := l.want("web-1", sondev1.PhaseCapturing, 3); got.UID != "pod-1" || got.Node != "n1" {
		t.Errorf("line %+v", got)
	}
	w.keeper.accounts <- counted(account.StateCapturing, 3) // nothing new
	w.keeper.accounts <- counted(account.StateDone, 7)
	l.want("web-1", sondev1.PhaseCompleted, 7)
	change(w, w.capture(), end)
	got := l.want("web-1", sondev1.PhaseCompleted, 7) // the final counts of the status
	want := &account.Account{
		Version: 1, State: account.StateDone, Complete: true, Engine: "ring", EngineMessage: "no other", Reason: "Duration",
		Counts: account.Counts{Seen: 13, Packets: 7, Bytes: 700, DroppedKernel: 1, DroppedRing: 2, DroppedWriter: 3, Truncated: 1},
		Files:  []account.File{{Name: "a.pcapng", Bytes: 900}},
	}
	if diff := cmp.Diff(want, got.Account); diff != "" {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	if b, err := json.Marshal(got.Account); err != nil {
		t.Error(err)
	} else if _, err := account.Parse(b); err != nil {
		t.Errorf("a client cannot read the account: %v", err)
	}
	if got := l.want("web-2", sondev1.PhaseFailed, 0); got.Error != "NodeLost: no answer" || got.Account != nil {
		t.Errorf("line %+v", got)
	}
	if got, ok := l.next(); ok || l.scan.Err() != nil {
		t.Errorf("after the end came %+v, %v", got, l.scan.Err())
	}
}

func TestProgressOfACaptureThatIsOver(t *testing.T) {
	w := newWorld(t)
	change(w, w.capture(), end)
	w.remove(&corev1.Secret{ObjectMeta: w.owned("shop-web-keeper", "")})
	l := w.stream()
	l.want("web-1", sondev1.PhaseCompleted, 7)
	l.want("web-2", sondev1.PhaseFailed, 0)
	if got, ok := l.next(); ok || l.scan.Err() != nil {
		t.Errorf("after the end came %+v, %v", got, l.scan.Err())
	}
}

func TestProgressBeforeThereIsAnything(t *testing.T) {
	w := newWorld(t)
	pod := agent(w.owned("web-1-qwer-x", "pod-1"))
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), keyOf(w.owned("shop-web-keeper", "")), secret); err != nil {
		t.Fatal(err)
	}
	w.remove(secret.DeepCopy())
	w.remove(pod.DeepCopy())
	change(w, w.capture(), func(pc *sondev1.PacketCapture) { pc.Status = sondev1.CaptureStatus{} })
	l := w.stream()
	if !eventually(func() bool { return l.scan.Scan() }) || len(l.scan.Bytes()) != 0 {
		t.Fatalf("got %q, want a heartbeat", l.scan.Bytes())
	}
	w.keeper.accounts <- counted(account.StateStarting, 0)
	secret.ResourceVersion = ""
	w.create(secret)
	w.create(pod)
	l.want("web-1", sondev1.PhasePending, 0)
	w.keeper.accounts <- counted(account.StateCapturing, 1)
	l.want("web-1", sondev1.PhaseCapturing, 1)
}

func TestProgressAsksAKeeperAgain(t *testing.T) {
	w := newWorld(t)
	l := w.stream()
	l.want("web-1", sondev1.PhaseCapturing, 0)
	w.keeper.accounts <- counted(account.StateCapturing, 1)
	l.want("web-1", sondev1.PhaseCapturing, 1)
	broken := w.keeper.next()
	w.keeper.replace()
	close(broken)
	if got := l.want("web-1", sondev1.PhaseCapturing, 0); !strings.Contains(got.Error, "does not answer") {
		t.Errorf("line %+v", got)
	}
	w.keeper.next() <- counted(account.StateCapturing, 2)
	l.want("web-1", sondev1.PhaseCapturing, 2)
}

func TestProgressTellsAnEndThatDoesNotAddUp(t *testing.T) {
	w := newWorld(t)
	l := w.stream()
	l.want("web-1", sondev1.PhaseCapturing, 0)
	a := counted(account.StateDone, 5)
	a.Seen = 6
	w.keeper.accounts <- a
	l.want("web-1", sondev1.PhaseIncomplete, 5)
}

func TestProgressBreaksOff(t *testing.T) {
	for name, do := range map[string]func(*world){
		"the right is taken away": func(w *world) { w.rights.set(false, false) },
		"the capture is deleted":  func(w *world) { w.remove(w.capture()) },
		"the access is deleted":   func(w *world) { w.remove(w.access("mine", nil)) },
		"the access expires": func(w *world) {
			change(w, w.access("mine", nil), func(ra *sondev1.ResultAccess) {
				ra.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l := w.stream()
			l.want("web-1", sondev1.PhaseCapturing, 0)
			do(w)
			if got, ok := l.next(); ok || !errors.Is(l.scan.Err(), io.ErrUnexpectedEOF) {
				t.Errorf("got %+v, %v; want the stream to break off", got, l.scan.Err())
			}
		})
	}
}

// A user of a hub may delete a capture and create another of its name, for a namespace where the reader has no right. The next review of
// the right comes seconds later.
func TestProgressShowsNoLaterCapture(t *testing.T) {
	w := newWorld(t)
	w.handler.recheck, w.handler.poll = time.Hour, 200*time.Millisecond
	l := w.stream()
	l.want("web-1", sondev1.PhaseCapturing, 0)
	later := w.capture()
	later.UID, later.Spec.TargetNamespace = "capture-2", "bank"
	later.Status.Pods[0].Name, later.Status.Pods[0].UID = "vault-1", "pod-9"
	w.remove(w.capture())
	w.create(later)
	if got, ok := l.next(); ok || !errors.Is(l.scan.Err(), io.ErrUnexpectedEOF) {
		t.Errorf("got %+v, %v; want the stream to break off", got, l.scan.Err())
	}
}

func TestProgressEndsWhenTheReaderLeaves(t *testing.T) {
	w := newWorld(t)
	resp := w.get(progress, nil)
	if _, err := resp.body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	resp.body.Close()
	gone := func() bool {
		w.handler.streams.mu.Lock()
		defer w.handler.streams.mu.Unlock()
		return len(w.handler.streams.held) == 0
	}
	if !eventually(gone) {
		t.Error("the stream goes on without a reader")
	}
}

// addPods adds running Pods to the capture, each with an agent whose keeper runs.
func (w *world) addPods(names ...string) {
	w.t.Helper()
	change(w, w.capture(), func(pc *sondev1.PacketCapture) {
		for _, name := range names {
			pc.Status.Pods = append(pc.Status.Pods, sondev1.PodResult{UID: "uid-" + name, Name: name, Node: "n1", Phase: sondev1.PhaseCapturing})
		}
	})
	for _, name := range names {
		meta := w.owned(name+"-qwer-x", "uid-"+name)
		meta.Annotations[sondev1.AnnotationTargetPod] = name
		w.create(agent(meta))
	}
}

// TestStreamsWatchABoundedNumberOfKeepers: each stream watches each keeper of its capture by a connection of its own. Streams of a
// namespace together watch no more than the namespace may, and the lines of the other Pods say why they have no counts. When a
// stream has ended, its places are taken.
func TestStreamsWatchABoundedNumberOfKeepers(t *testing.T) {
	const most = 5
	w := newWorld(t)
	w.handler.watches = newPlaces("watches of Pods", 2*most, most, 2*most, streamSlice, w.handler.Clock)
	w.addPods("web-2", "web-3")
	first := w.get(progress, nil)
	if !eventually(func() bool { return w.keeper.watching.Load() == 3 }) {
		t.Fatalf("%d keepers are watched by the first stream, want 3", w.keeper.watching.Load())
	}
	second := w.stream()
	eventually(func() bool { return w.keeper.watching.Load() >= most })
	time.Sleep(10 * w.handler.retry) // each retry is refused, too
	if n := w.keeper.watching.Load(); n != most {
		t.Fatalf("%d keepers are watched at once, want %d", n, most)
	}
	refused := 0
	for range 4 { // three Pods from the status, and the one without a place
		l, ok := second.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if strings.Contains(l.Error, "captures in namespace shop have 5 watches of Pods open, the most at one replica") {
			refused++
		} else if l.Error != "" {
			t.Errorf("line %+v", l)
		}
	}
	if refused != 1 {
		t.Errorf("%d Pods without a place, want 1", refused)
	}
	first.body.Close()
	if !eventually(func() bool { return w.keeper.watching.Load() == 3 }) {
		t.Errorf("%d keepers are watched when the first stream has ended, want 3", w.keeper.watching.Load())
	}
}

// TestAWatchYields: when all places for watches are taken, one of the namespace with the most goes to another. The stream goes on,
// says so, and watches the Pod again when a place is free.
func TestAWatchYields(t *testing.T) {
	w := newWorld(t)
	w.handler.watches = newPlaces("watches of Pods", 2, 2, 2, streamSlice, w.handler.Clock)
	w.addPods("web-2")
	l := w.stream()
	l.want("web-1", sondev1.PhaseCapturing, 0)
	l.want("web-2", sondev1.PhaseCapturing, 0)
	if !eventually(func() bool { return w.keeper.watching.Load() == 2 }) {
		t.Fatal("the keepers are not watched")
	}
	_, other, err := w.handler.watches.hold(t.Context(), "bank", "bob")
	if err != nil {
		t.Fatalf("another namespace gets no place: %v", err)
	}
	if got, ok := l.next(); !ok || !strings.Contains(got.Error, "was given to a namespace that has fewer watches of Pods open") {
		t.Errorf("line %+v", got)
	}
	w.handler.watches.leave(other)
	if !eventually(func() bool { return w.keeper.watching.Load() == 2 }) {
		t.Error("the Pod is not watched again")
	}
}
