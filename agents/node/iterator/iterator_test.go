package iterator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// interrupted returns EAGAIN before each read of its output, as the kernel does after a million files of other Pods.
type interrupted struct {
	left   int
	paused bool
}

func (r *interrupted) Read(b []byte) (int, error) {
	if r.paused = !r.paused; r.paused {
		return 0, &os.PathError{Op: "read", Path: "bpf_iter", Err: unix.EAGAIN}
	}
	n := min(r.left, len(b), 7)
	if r.left -= n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestReadsOnAfterAnInterruption(t *testing.T) {
	r := bufio.NewReader(&patient{&interrupted{left: 1000}, time.Now().Add(time.Minute), time.Minute})
	if b, err := io.ReadAll(r); len(b) != 1000 || err != nil {
		t.Errorf("%d bytes, %v; want 1000", len(b), err)
	}
}

// endless is an iterator that is never at its end.
type endless struct{ err error }

func (e endless) Read(b []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	return len(b), nil
}

// A deadline ends the reading, whether the program writes much or nothing.
func TestReadsUntilADeadline(t *testing.T) {
	for name, r := range map[string]io.Reader{"much": endless{}, "nothing": endless{unix.EAGAIN}} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := io.Copy(io.Discard, &patient{r, began.Add(50 * time.Millisecond), time.Minute})
			if took := time.Since(began); !errors.Is(err, ErrSlow) || took < 50*time.Millisecond || took > 10*time.Second {
				t.Errorf("%v after %v, want %v after 50ms", err, took, ErrSlow)
			}
		})
	}
}

// Other errors end the reading at once.
func TestReadFails(t *testing.T) {
	want := fmt.Errorf("read: %w", unix.EINVAL)
	if _, err := io.ReadAll(&patient{endless{want}, time.Now().Add(time.Minute), time.Minute}); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// stuck gives some bytes, and then never returns.
type stuck struct {
	given   bool
	release chan struct{}
}

func (s *stuck) Read(b []byte) (int, error) {
	if !s.given {
		s.given = true
		return copy(b, "some"), nil
	}
	<-s.release
	return copy(b, "more"), nil
}

// A call of the kernel that never ends costs what the iterator would still have found, and not the recording.
func TestLeavesACallThatNeverEnds(t *testing.T) {
	s := &stuck{release: make(chan struct{})}
	defer close(s.release)
	got, err := io.ReadAll(&patient{s, time.Now().Add(50 * time.Millisecond), 50 * time.Millisecond})
	if string(got) != "some" || !errors.Is(err, ErrSlow) {
		t.Errorf("%q, %v; want %q and %v", got, err, "some", ErrSlow)
	}
}
