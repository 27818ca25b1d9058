package capture

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/frames"
)

// While someone reads the file, the engine says up to which time all packets are in it. It never says a time before which a packet
// comes later. Nobody hears anything otherwise.
func TestFollowed(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel()
			n := newTestNet(t)
			s := n.senderTo(t, n.target, n.peer, peerIP)
			var followed atomic.Bool
			var horizon atomic.Uint64
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Followed: followed.Load, Complete: horizon.Store,
			})
			s.send(0, 1)
			await(t, "the packet in the file", func() bool { return readFile(t, r.path).numbers(t, "eth0")[0] == 1 })
			if at := horizon.Load(); at != 0 {
				t.Errorf("horizon %d, and nobody follows", at)
			}
			followed.Store(true)
			for sent := uint32(1); sent < 20; sent++ {
				before := uint64(time.Now().UnixNano())
				s.send(sent, sent+1)
				after := uint64(time.Now().UnixNano())
				await(t, "the time of the packet", func() bool { return horizon.Load() >= after })
				if got := readFile(t, r.path).numbers(t, "eth0")[sent]; got != 1 {
					t.Errorf("packet %d is %d times in the file, whose packets are said to be complete since %d ns after it", sent, got, horizon.Load()-before)
				}
			}
			quiet := horizon.Load()
			time.Sleep(soon)
			await(t, "a later time without packets", func() bool { return horizon.Load() > quiet })
			r.stop()
		})
	}
}
