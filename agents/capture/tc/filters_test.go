package tc

import (
	"testing"

	"github.com/vishvananda/netlink"
)

func TestFreeHandle(t *testing.T) {
	for name, tc := range map[string]struct {
		used []uint32
		want uint32
	}{
		"none":               {nil, firstHandle},
		"others'":            {[]uint32{1, 2}, firstHandle},
		"captures'":          {[]uint32{firstHandle + 1, firstHandle}, firstHandle + 2},
		"an ended capture's": {[]uint32{firstHandle + 1, firstHandle + 2}, firstHandle},
	} {
		t.Run(name, func(t *testing.T) {
			var filters []*netlink.BpfFilter
			for _, handle := range tc.used {
				filters = append(filters, &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{Handle: handle}})
			}
			if got := freeHandle(filters); got != tc.want {
				t.Errorf("%#x, want %#x", got, tc.want)
			}
		})
	}
}
