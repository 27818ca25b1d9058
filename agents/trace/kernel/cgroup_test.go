package kernel

import (
	"slices"
	"testing"
)

// The Pod's level is the outermost with its name: its containers may give their own cgroups the same name.
func TestPodLevel(t *testing.T) {
	const uid, other = "0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f", "1f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f"
	deep := slices.Repeat([]string{"x"}, 70)
	for name, tc := range map[string]struct {
		path  []string // from the root on
		depth uint32
		ok    bool
	}{
		"a container's process":       {[]string{"", "kubepods", "pod" + uid, "c"}, 2, true},
		"systemd's name":              {[]string{"", "kubepods.slice", "kubepods-pod0f7c5a4e_1b0c_4e0e_9d1b_5a3b6c7d8e9f.slice", "c"}, 2, true},
		"a cgroup of the container":   {[]string{"", "kubepods", "pod" + uid, "c", "a", "b"}, 2, true},
		"with the Pod's name":         {[]string{"", "kubepods", "pod" + uid, "c", "pod" + uid, "c"}, 2, true},
		"a node within another's Pod": {[]string{"", "kubepods", "pod" + other, "c", "pod" + uid, "c"}, 4, true},
		"of another Pod":              {[]string{"", "kubepods", "pod" + other, "c"}, 0, false},
		"of the node":                 {[]string{"", "system.slice", "x.service"}, 0, false},
		"without its root":            {append([]string{"", "kubepods", "pod" + uid, "c"}, deep...), 0, false},
		"none":                        {nil, 0, false},
	} {
		var levels []Level
		for depth, part := range slices.Backward(tc.path) {
			l := Level{Cgroup: uint64(depth + 1), Depth: uint32(depth)}
			for i, c := range []byte(part) {
				l.Name[i] = int8(c)
			}
			levels = append(levels, l)
		}
		got, ok := podLevel(levels[:min(len(levels), 64)], uid)
		if ok != tc.ok || got.Depth != tc.depth {
			t.Errorf("%s: level %d, %v; want %d, %v", name, got.Depth, ok, tc.depth, tc.ok)
		}
	}
}
