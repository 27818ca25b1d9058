package capture

import "testing"

// The engine in a table's row is the one that captured.
func TestCapturedBy(t *testing.T) {
	for name, tc := range map[string]struct {
		asked, took string
		want        bool
	}{
		"tcx":         {"bpf", "tcx", true},
		"clsact":      {"bpf", "clsact", true},
		"sockets":     {"afpacket", "afpacket", true},
		"not bpf":     {"bpf", "afpacket", false},
		"not sockets": {"afpacket", "tcx", false},
		"no engine":   {"bpf", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := capturedBy(tc.asked, tc.took); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
