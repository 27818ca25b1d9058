package capture

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/ring"
)

// A burst wakes the reader, which sleeps for long in quiet, before a ring is full.
func TestProgramsAskTheReader(t *testing.T) {
	n := newTestNet(t)
	c, err := New(KindBPF).Open(&Config{NetNS: n.target, Filters: onlyDiscard, Dir: t.TempDir(), Base: "web", RingBytes: 1 << 20, SnapLen: 2000})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := c.(*session).taker.(*blocks)
	if pause, err := b.pass(); err != nil || pause == 0 || asked(t, b) {
		t.Fatalf("pause %v, %v, in quiet", pause, err)
	}
	s := n.blind(t, 1000)
	for sent := uint32(0); !asked(t, b); sent += 10 {
		s.send(sent, sent+10)
		if ring.Fullest(b.programs.rings) > 0.5 {
			t.Fatalf("nobody asked for the reader after %d packets", sent)
		}
	}
	if full := ring.Fullest(b.programs.rings); full < 0.1 || full > 0.25 {
		t.Errorf("asked when a ring was full to %v", full)
	}
	await(t, "the packets to be taken", func() bool {
		_, err := b.pass()
		return err == nil && ring.Fullest(b.programs.rings) == 0
	})
	if asked(t, b) {
		t.Error("asked still")
	}
}

func asked(t *testing.T, b *blocks) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(b.programs.waker.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}
