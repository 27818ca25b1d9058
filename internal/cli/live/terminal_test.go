package live

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func newScreen(width, height int) (*screen, *Terminal) {
	s := &screen{width: width}
	return s, NewTerminal(s, func() (int, int) { return s.width, height })
}

func want(v View, width int) string { return strings.Join(Lines(v, width, 0), "\n") + "\n" }

func TestTerminalRedrawsInPlace(t *testing.T) {
	s, d := newScreen(80, 24)
	v := twoPods()
	d.Show(v)
	v.Pods[0].Count = 9
	v.Clock = "9s of 30s" // shorter than before
	d.Show(v)
	if diff := cmp.Diff(want(v, 80), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

func TestTerminalWritesEachFrameAtOnceAndNoneTwice(t *testing.T) {
	s, d := newScreen(80, 24)
	d.Show(twoPods())
	d.Show(twoPods())
	if s.writes != 1 {
		t.Errorf("%d writes for one frame", s.writes)
	}
}

func TestTerminalErasesWhatIsGone(t *testing.T) {
	s, d := newScreen(80, 24)
	d.Show(twoPods())
	v := View{Title: "shop/web", Status: "Completed"}
	d.Show(v)
	if diff := cmp.Diff(want(v, 80), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

func TestTerminalSaysAboveTheView(t *testing.T) {
	s, d := newScreen(80, 24)
	d.PrintLine("first")
	d.Show(twoPods())
	d.PrintLine("second")
	if diff := cmp.Diff("first\nsecond\n"+want(twoPods(), 80), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

// Printed lines on the same terminal do not overlap the View, which is redrawn below them.
func TestTerminalPrintsAboveTheView(t *testing.T) {
	s, d := newScreen(80, 24)
	for _, text := range []string{"first\n", "second\nthird\n"} {
		if err := d.Print(s, []byte(text)); err != nil {
			t.Fatal(err)
		}
		d.Show(twoPods())
	}
	if diff := cmp.Diff("first\nsecond\nthird\n"+want(twoPods(), 80), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
	if err := d.Print(closed{}, []byte("more\n")); err == nil {
		t.Error("Print reports no error for a closed writer")
	}
}

// closed is a writer without a reader.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestTerminalSurvivesNarrowing(t *testing.T) {
	s, d := newScreen(100, 24)
	d.PrintLine("before")
	d.Show(twoPods())
	s.resize(40)
	d.Show(twoPods())
	if diff := cmp.Diff("before\n"+want(twoPods(), 40), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

func TestTerminalOverwritesTheEchoOfAnInterrupt(t *testing.T) {
	s, d := newScreen(80, 24)
	d.Show(twoPods())
	_, _ = s.Write([]byte("^C"))
	v := twoPods()
	v.Status = "Stopping"
	d.Show(v)
	if diff := cmp.Diff(want(v, 80), s.text()); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

// A terminal in raw mode gets to the first column only by a carriage return.
func TestRawWriter(t *testing.T) {
	var b strings.Builder
	if n, err := (RawWriter{&b}).Write([]byte("one\ntwo\n")); n != 8 || err != nil || b.String() != "one\r\ntwo\r\n" {
		t.Errorf("wrote %q, %d, %v", b.String(), n, err)
	}
	if _, err := (RawWriter{closed{}}).Write([]byte("x")); err == nil {
		t.Error("no error for a closed writer")
	}
}

func TestTerminalNeverScrolls(t *testing.T) {
	s, d := newScreen(80, 10)
	v := manyPods()
	d.Show(v)
	if s.row > 9 {
		t.Errorf("the cursor is in row %d of a terminal of 10", s.row+1)
	}
	d.Close()
	if !strings.Contains(s.text(), "more Pods") {
		t.Errorf("Pods that do not fit are not mentioned:\n%s", s.text())
	}
}
