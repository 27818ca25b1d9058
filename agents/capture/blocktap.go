package capture

import (
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// blockTap is an interface whose packets are taken by programs.
type blockTap struct {
	*blocks
	*track
	index    int
	loopback bool
	lt       pcapng.LinkType
	slot     uint32
	before   uint64 // losses of those that had the slot before
	lost     uint64 // that are in the account

	attached attachment // nil where nothing is
	parked   bool
	since    uint64 // when it was parked, by the monotonic clock
}

// start implements tap.
func (t *blockTap) start(to *track) (err error) {
	t.track = to
	pair := t.programs.of[t.lt].Programs
	in, out := pair[packetsProgSondeIn], pair[packetsProgSondeOut]
	if t.loopback {
		out = (*ebpf.Program)(nil) // each packet passes loopback twice, out and in; once is enough (as libpcap has it)
	}
	if err := t.programs.know(t.index, to.id, t.slot); err != nil {
		return err
	}
	if t.attached, err = t.attacher.attach(t.netns, t.index, in, out); err != nil {
		return err
	}
	t.log.Info("Attached to interface", "interface", to.acct.Name, "linkType", t.lt, "way", t.attacher.name())
	return nil
}

// park implements tap. At the end of the capture nothing comes any more from anywhere, and close takes away what is
// attached: that takes the kernel some milliseconds for each interface.
func (t *blockTap) park() error {
	if t.refused {
		t.parked = true
		return nil
	}
	err := t.detach()
	awaitPrograms()
	t.parked, t.since = true, now(unix.CLOCK_MONOTONIC)
	if ferr := t.programs.forget(t.index); err == nil {
		err = ferr
	}
	return err
}

// done reports whether a parked interface's packets have all been taken.
func (t *blockTap) done() bool {
	return t.parked && (t.refused || t.taken > t.since)
}

func (t *blockTap) detach() error {
	if t.attached == nil {
		return nil
	}
	err := t.attached.Close()
	t.attached = nil
	return err
}

// drop implements tap.
func (t *blockTap) drop() error {
	t.slots[t.slot] = false
	t.live = slices.DeleteFunc(t.live, func(o *blockTap) bool { return o == t })
	return nil
}

// countLost puts what the programs have counted into the account.
func (t *blockTap) countLost() {
	if t.track == nil {
		return
	}
	n := t.programs.lost(t.slot) - t.before
	if n == t.lost {
		return
	}
	t.lose(n-t.lost, &t.acct.DroppedRing)
	t.lost = n
	t.rec.publishTrack(t.track)
}
