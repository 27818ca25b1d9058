package process

import "testing"

func TestDepth(t *testing.T) {
	const (
		uid  = "0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f"
		slug = "0f7c5a4e_1b0c_4e0e_9d1b_5a3b6c7d8e9f"
		id   = "00000000000000000000000000000000000000000000000000000000000000aa"
	)
	for name, tc := range map[string]struct {
		file   string
		below  int
		v1, ok bool
	}{
		"v2":                        {"0::/kubepods.slice/kubepods-pod" + slug + ".slice/cri-containerd-" + id + ".scope\n", 1, false, true},
		"v2, the container's own":   {"0::/kubepods.slice/kubepods-pod" + slug + ".slice/crio-" + id + ".scope/init/app\n", 3, false, true},
		"v1":                        {"3:memory:/x\n5:pids:/kubepods/pod" + uid + "/" + id + "\n0::/\n", 1, true, true},
		"v1, below":                 {"5:cpu,pids:/kubepods/burstable/pod" + uid + "/" + id + "/a\n", 2, true, true},
		"v1, another controller":    {"5:memory:/kubepods/pod" + uid + "/" + id + "\n", 0, false, false},
		"no newline at the end":     {"0::/kubepods/pod" + uid + "/" + id, 1, false, true},
		"no Pod":                    {"0::/system.slice/sshd.service\n", 0, false, false},
		"the Pod's itself":          {"0::/kubepods/pod" + uid + "\n", 0, false, false},
		"no cgroup of the Pod":      {"0::/kubepods-pod" + slug + ".slice:cri-containerd:" + id + "\n", 0, false, false},
		"seen from another cgroup":  {"0::/../../pod" + uid + "/" + id + "\n", 1, false, true},
		"nothing":                   {"", 0, false, false},
		"not a file of this format": {"pod" + uid + "\n", 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			below, v1, ok := Depth([]byte(tc.file), "pids")
			if below != tc.below || v1 != tc.v1 || ok != tc.ok {
				t.Errorf("%d, v1 %v, %v; want %d, %v, %v", below, v1, ok, tc.below, tc.v1, tc.ok)
			}
		})
	}
}
