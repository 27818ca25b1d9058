package processes

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// TestProcessesShareAnIOUring has processes whose socket a child uses by an io_uring, without a descriptor of it. No packet may name the
// parent, whether it has a descriptor or not, and whether the child runs another program or not.
func TestProcessesShareAnIOUring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	modes := map[int]string{0: "ring-exec", 1: "ring-exec-keep", 2: "ring-fork", 3: "ring-fork-keep"}
	for i, mode := range modes {
		w.Run(7000+i, w.Program, mode)
	}
	stop := w.start()
	for i, mode := range modes {
		w.Run(7100+i, w.Program, mode)
	}
	time.Sleep(3 * time.Second) // for some scans
	all := w.Scores(stop().Path)
	for i, mode := range modes {
		for when, base := range map[string]int{"before": 7000, "after": 7100} {
			s := all[uint16(base+i)]
			// A scan does not find a socket that is registered only.
			if s == nil || s.Reasons[pcapng.ProcessForked]+s.Reasons[pcapng.ProcessIOUring]+s.Reasons[pcapng.ProcessUnseen] == 0 || s.Right+s.Wrong > 0 {
				t.Errorf("%s, started %s the capture: %+v", mode, when, s)
			}
		}
	}
}

// A process has a socket in an io_uring only, while another one has a descriptor of the socket. No packet may name that one, before
// or after scans.
func TestProcessesBesideAnIOUring(t *testing.T) {
	t.Parallel()
	modes := []string{"ring-inherited", "ring-received", "ring-taken", "ring-hidden"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Run(7000, w.Program, mode)
			w.Run(7002, w.Program, "all") // has nothing to do with it, which nothing shows
			stop := w.start()
			w.Run(7100, w.Program, mode)
			w.awaitLast(7100, pcapng.ProcessIOUring)
			time.Sleep(2 * time.Second) // for some scans
			all := w.Scores(stop().Path)
			for _, port := range []uint16{7000, 7100, 7006} {
				if s := all[port]; s == nil || s.Reasons[pcapng.ProcessIOUring] == 0 || s.Right+s.Wrong > 0 {
					t.Errorf("port %d: %+v", port, s)
				}
			}
		})
	}
}

// Names come back when the process with the io_uring has ended.
func TestProcessesAfterAnIOUring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Run(7000, w.Program, "all")
	const talks = 7006
	stop := w.start()
	w.awaitLast(talks, pcapng.ProcessKnown)
	ring := w.Run(7100, w.Program, "ring-alone")
	w.awaitLast(talks, pcapng.ProcessIOUring)
	w.awaitLast(7100, pcapng.ProcessKnown)
	_ = ring.Process.Kill()
	_ = ring.Wait()
	w.awaitLast(talks, pcapng.ProcessKnown)
	if s := w.Scores(stop().Path)[talks]; s.Wrong > 0 {
		t.Errorf("%+v", s)
	}
}

// The only process with an io_uring has a name, and so have all if no files are registered. A process that has shared its io_uring
// has a name when the other one has ended.
func TestProcessesHaveIOUrings(t *testing.T) {
	t.Parallel()
	for mode, reasons := range map[string]map[pcapng.ProcessReason]bool{
		"ring-alone": nil, "ring-empty": nil, "ring-lend": {pcapng.ProcessForked: true, pcapng.ProcessIOUring: true},
	} {
		for when, before := range map[string]bool{"before": true, "after": false} {
			t.Run(mode+" started "+when+" the capture", func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				if before {
					w.Run(7000, w.Program, mode)
				}
				stop := w.start()
				if !before {
					w.Run(7000, w.Program, mode)
				}
				w.awaitLast(7000, pcapng.ProcessKnown)
				time.Sleep(time.Second)
				s := w.Scores(stop().Path)[7000]
				if s.Right == 0 || s.Wrong > 0 || s.Last.Reason != pcapng.ProcessKnown {
					t.Errorf("%+v", s)
				}
				if reasons == nil && s.Unknown > s.Right || reasons != nil && !before && s.Unknown == 0 {
					t.Errorf("%d unknown: %+v", s.Unknown, s)
				}
				for r := range s.Reasons {
					if reasons != nil && !reasons[r] {
						t.Errorf("packets say %q", r)
					}
				}
			})
		}
	}
}
