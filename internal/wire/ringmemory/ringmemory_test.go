package ringmemory_test

import (
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

const mi = 1 << 20

func TestMost(t *testing.T) {
	for name, tc := range map[string]struct{ together, want int64 }{
		// 512 rings of 256 KiB, each with half of that after its end.
		"the least":         {mi, (128 + 64 + 8) * mi},
		"as many as needed": {128 * mi, (128 + 64 + 8) * mi},
		"more":              {192 * mi, (192 + 96 + 8) * mi},
		// A packet is not longer than 256 KiB.
		"much": {1024 * mi, (1024 + 128 + 8) * mi},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ringmemory.MaxBytes(tc.together); got != tc.want {
				t.Errorf("%d MiB, want %d", got/mi, tc.want/mi)
			}
		})
	}
}
