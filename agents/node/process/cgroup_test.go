package process

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	uid   = "3f1c2d4e-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
	under = "3f1c2d4e_5a6b_4c7d_8e9f_0a1b2c3d4e5f"
	other = "3f1c2d4e-5a6b-4c7d-8e9f-0a1b2c3d4e50"
	hash  = "0123456789abcdef0123456789abcdef"
	id    = "a1a2a3a4a5a6a7a8b1b2b3b4b5b6b7b8c1c2c3c4c5c6c7c8d1d2d3d4d5d6d7d8"
	id2   = "ffffffffa5a6a7a8b1b2b3b4b5b6b7b8c1c2c3c4c5c6c7c8d1d2d3d4d5d6d7d8"
)

// Sources of the formats. Pod components: pod_container_manager_linux.go and cgroup_manager_linux.go of the kubelet
// (GetPodContainerName, ToCgroupfs, ToSystemd). Container components: containerd's internal/cri/server
// (getCgroupsPath), CRI-O's internal/config/cgmgr (cgroupfs_linux.go, systemd_linux.go), cri-dockerd with docker's
// daemon.
func TestParseCgroup(t *testing.T) {
	want := Container{PodUID: uid, ID: id}
	cases := map[string]struct {
		file string
		want Container
	}{
		"containerd, cgroupfs, v2":                {"0::/kubepods/burstable/pod" + uid + "/" + id + "\n", want},
		"containerd, cgroupfs, guaranteed":        {"0::/kubepods/pod" + uid + "/" + id + "\n", want},
		"containerd, cgroupfs, no newline":        {"0::/kubepods/besteffort/pod" + uid + "/" + id, want},
		"containerd, systemd, v2":                 {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", want},
		"containerd, systemd, guaranteed":         {"0::/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", want},
		"containerd under systemd, not delegated": {"0::/system.slice/containerd.service/kubepods-besteffort-pod" + under + ".slice:cri-containerd:" + id + "\n", want},
		"CRI-O, systemd":                          {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-" + id + ".scope\n", want},
		"CRI-O, systemd, crun's own child":        {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-" + id + ".scope/container\n", want},
		"CRI-O, cgroupfs":                         {"0::/kubepods/besteffort/pod" + uid + "/crio-" + id + "\n", want},
		"CRI-O's monitor":                         {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-conmon-" + id + ".scope\n", Container{}},
		"CRI-O's monitor, cgroupfs":               {"0::/kubepods/besteffort/pod" + uid + "/crio-conmon-" + id + "\n", Container{}},
		"docker, systemd":                         {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/docker-" + id + ".scope\n", want},
		"docker, cgroupfs, v1":                    {"4:memory:/kubepods/burstable/pod" + uid + "/" + id + "\n", want},
		"static pod":                              {"0::/kubepods/burstable/pod" + hash + "/" + id + "\n", Container{PodUID: hash, ID: id}},
		"static pod, systemd":                     {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hash + ".slice/cri-containerd-" + id + ".scope\n", Container{PodUID: hash, ID: id}},
		"kubelet with a cgroup root":              {"0::/kubelet/kubepods/besteffort/pod" + uid + "/" + id + "\n", want},
		"kubelet with a cgroup root, systemd":     {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", want},
		"node in a container":                     {"0::/docker/" + id2 + "/kubelet/kubepods/besteffort/pod" + uid + "/" + id + "\n", want},
		"reader in a cgroup namespace":            {"0::/../../pod" + uid + "/" + id + "\n", want},
		"reader in a cgroup namespace, systemd":   {"0::/../../kubepods-besteffort-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", want},
		"container with cgroups of its own":       {"0::/kubepods/besteffort/pod" + uid + "/" + id + "/system.slice/x.service\n", want},
		"container that names another pod":        {"0::/kubepods/besteffort/pod" + uid + "/" + id + "/kubepods/pod" + other + "/" + id2 + "\n", want},
		"v1, only one hierarchy names it": {
			"9:name=systemd:/\n8:pids:/\n4:memory:/kubepods/besteffort/pod" + uid + "/" + id + "\n0::/\n", want,
		},
		"v1, named hierarchy with a colon": {"9:name=a:/x:y\n8:pids:/kubepods/pod" + uid + "/" + id + "\n", want},

		"pod's own cgroup":         {"0::/kubepods/besteffort/pod" + uid + "\n", Container{}},
		"longer UID":               {"0::/kubepods/besteffort/pod" + uid + "0/" + id + "\n", Container{}},
		"UID within a name":        {"0::/kubepods/besteffort/xpod" + uid + "/" + id + "\n", Container{}},
		"slice of another service": {"0::/user.slice/my-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", Container{}},
		"ID that is too long":      {"0::/kubepods/pod" + uid + "/" + id + "0\n", Container{}},
		"ID with other letters":    {"0::/kubepods/pod" + uid + "/" + strings.Repeat("g", 64) + "\n", Container{}},
		"kubelet":                  {"0::/system.slice/kubelet.service\n", Container{}},
		"root":                     {"0::/\n", Container{}},
		"empty":                    {"", Container{}},
		"garbage":                  {"::::\n\n:\npod", Container{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseCgroup([]byte(tc.file))
			if !ok {
				got = Container{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if ok != (tc.want != Container{}) {
				t.Errorf("found = %v", ok)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add([]byte("0::/kubepods/burstable/pod" + uid + "/" + id + "\n"))
	f.Add([]byte("0::/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope\n"))
	f.Add([]byte("1:a:/kubepods-pod" + under + ".slice:cri-containerd:" + id))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := ParseCgroup(b)
		if !ok {
			return
		}
		if !validUID(c.PodUID) || !validID(c.ID) {
			t.Errorf("accepted %+v", c)
		}
		// The path must contain the complete names.
		s := strings.ReplaceAll(string(b), "_", "-")
		if !strings.Contains(s, "pod"+c.PodUID) || !strings.Contains(s, c.ID) {
			t.Errorf("%+v is not in %q", c, b)
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 77 9 10"))
	f.Add([]byte(")"))
	f.Add([]byte(")\x00 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if state, _, err := parseStat(b); err == nil && state == 0 {
			t.Error("no state and no error")
		}
	})
}
