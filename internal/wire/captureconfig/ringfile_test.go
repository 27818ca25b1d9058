package captureconfig

import "testing"

func TestRingFile(t *testing.T) {
	for name, tc := range map[string]struct {
		base   string
		number uint64
	}{
		"web-1-qwer-0000000001.pcapng":  {"web-1-qwer", 1},
		"web-1-qwer-4294967295.pcapng":  {"web-1-qwer", 4294967295},
		"web-1-qwer-12345678901.pcapng": {"web-1-qwer", 12345678901},
		"web-1-qwer.pcapng":             {},
		"web-1234567890-qwer.pcapng":    {},
		"web-1-qwer-0000000001.ndjson":  {},
		"web-1-qwer-0000000000.pcapng":  {},
		"web-1-qwer-1.pcapng":           {},
		"web-1-qwer-00000000001.pcapng": {},
		"web-1-qwer-+000000001.pcapng":  {},
		"-0000000001.pcapng":            {},
		"0000000001.pcapng":             {},
		".pcapng":                       {},
		"":                              {},
	} {
		base, number, ok := ParseRingFile(name)
		if base != tc.base || number != tc.number || ok != (tc.base != "") {
			t.Errorf("%s: %q, %d, %v, want %+v", name, base, number, ok, tc)
		}
		if ok && RingFile(base, number) != name {
			t.Errorf("%s: the same parts make %s", name, RingFile(base, number))
		}
	}
}

func FuzzParseRingFile(f *testing.F) {
	f.Add("web-1-qwer-0000000001.pcapng")
	f.Add("--18446744073709551615.pcapng")
	f.Fuzz(func(t *testing.T, name string) {
		if base, number, ok := ParseRingFile(name); ok && (base == "" || number == 0 || RingFile(base, number) != name) {
			t.Errorf("%q is %q, %d", name, base, number)
		}
	})
}
