package captureconfig

import "testing"

func TestHorizon(t *testing.T) {
	const at = 1_764_000_000_123_456_789
	whole, later := AppendHorizon(nil, at), AppendHorizon(nil, at+1)
	for name, tc := range map[string]struct {
		b    []byte
		want uint64
	}{
		"whole":      {whole, at},
		"two writes": {append(append([]byte{}, whole[:8]...), later[8:]...), 0},
		"short":      {whole[:8], 0},
		"long":       {append(append([]byte{}, whole...), 0), 0},
		"empty":      {nil, 0},
		"zeros":      {make([]byte, HorizonLen), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseHorizon(tc.b); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}
