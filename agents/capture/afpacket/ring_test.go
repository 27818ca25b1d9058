package afpacket

import "testing"

// defaultRingBytes is the engine's default.
const defaultRingBytes = 32 << 20

func TestRingSize(t *testing.T) {
	cases := map[string]struct {
		share             int
		wantSize, wantNum int
	}{
		"default, one interface": {defaultRingBytes, 1 << 20, 32},
		"eth0 beside lo":         {defaultRingBytes * 3 / 4, 1 << 20, 24},
		"ten interfaces":         {defaultRingBytes / 10, 512 << 10, 6},
		"a node's hundreds":      {defaultRingBytes / 300, 128 << 10, 2},
		"nothing":                {0, 128 << 10, 2},
		"large":                  {1 << 30, 1 << 20, 1024},
		"just four large ones":   {4 << 20, 1 << 20, 4},
		"just less than four":    {4<<20 - 1, 512 << 10, 7},
		"small":                  {512 << 10, 128 << 10, 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if size, num := ringSize(tc.share); size != tc.wantSize || num != tc.wantNum {
				t.Errorf("%d blocks of %d bytes, want %d of %d", num, size, tc.wantNum, tc.wantSize)
			}
		})
	}
}
