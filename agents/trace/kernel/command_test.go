package kernel

import (
	"strings"
	"testing"
)

func TestCommandCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		name, want string // an empty want: no error
	}{
		"a name":                {name: "nginx"},
		"a path":                {name: "/usr/sbin/nginx"},
		"a name with blanks":    {name: "nginx: worker"},
		"the longest":           {name: strings.Repeat("x", maxCommand)},
		"the deepest":           {name: strings.Repeat("/x", maxParts)},
		"nothing":               {want: "1 to 255"},
		"too long":              {name: strings.Repeat("x", maxCommand+1), want: "256 bytes"},
		"with a zero":           {name: "a\x00b", want: "without a zero byte"},
		"too deep":              {name: strings.Repeat("/x", maxParts+1), want: "more than 31 directories"},
		"a relative path":       {name: "bin/nginx", want: "/proc/PID/exe"},
		"a directory":           {name: "/usr/sbin/", want: "/proc/PID/exe"},
		"a detour":              {name: "/usr/../bin/x", want: "/proc/PID/exe"},
		"the root, and nothing": {name: "/", want: "/proc/PID/exe"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Command{Name: tc.name}).Check()
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestWords(t *testing.T) {
	var w [2]uint64
	words(w[:], "sh")
	b := [16]byte{'s', 'h'}
	for i := range w {
		for k := range 8 {
			if got := byte(w[i] >> (8 * k)); got != b[8*i+k] { // both architectures begin with the lowest byte
				t.Errorf("byte %d is %d, want %d", 8*i+k, got, b[8*i+k])
			}
		}
	}
}
