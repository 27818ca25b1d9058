package decode

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// A process that ran when the trace began keeps its container's name, even if it ends before its first event is read. A
// gate ends as soon as it is opened.
func TestContainerOfAnEndedProcess(t *testing.T) {
	proc := t.TempDir()
	const pid, sidecar, cgroup = 7, 8, 99
	for name, mount := range map[string]string{
		"7": "1 2 0:3 /var/lib/kubelet/pods/0aa4ec7b-7d3c-4ab5-a6f3-5e2a1a8e8a4a/containers/sonde-gate/1f2e /dev/termination-log rw - ext4 /dev/sda rw\n",
		"8": "1 2 0:3 / / rw - overlay overlay rw\n",
	} {
		dir := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mount), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newResolver(process.Finder{Root: proc}, "")
	r.process(pid, 0)
	r.process(sidecar, 0)
	for _, name := range []string{"7", "8"} {
		if err := os.RemoveAll(filepath.Join(proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.process(pid, cgroup).container; got != "sonde-gate" {
		t.Errorf("container %q, want sonde-gate", got)
	}
	if got := r.process(sidecar, cgroup+1).container; got != "" {
		t.Errorf("container %q of a process that was in none", got)
	}
}

// A process of the target has ended, and its number is one of another Pod's process now: nothing of that is in the trace.
func TestNumberOfAnotherPodsProcess(t *testing.T) {
	const uid, id = "0f7c5a4e-1b0c-4e0e-9d1c-000000000001", "00000000000000000000000000000000000000000000000000000000000000aa"
	for name, tc := range map[string]struct{ cgroup, path, container string }{
		"of the target":  {"0::/kubepods/pod" + uid + "/" + id, "/srv/own", "web"},
		"of another Pod": {"0::/kubepods/pod" + strings.Repeat("f", 8) + uid[8:] + "/" + id, "", ""},
		"of the node":    {"0::/system.slice/sshd.service", "", ""},
		"has ended":      {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "77")
			if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
				t.Fatal(err)
			}
			for link, to := range map[string]string{"fd/3": "/srv/own", "cwd": "/home/own"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			mounts := "812 790 8:1 /var/lib/kubelet/pods/uid/containers/web/5f3a9c11 /dev/termination-log rw - ext4 /dev/sda1 rw\n"
			for file, text := range map[string]string{"cgroup": tc.cgroup, "mountinfo": mounts} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d := New(Config{Node: process.Finder{Root: root}, PodUID: uid, Calls: Calls([]Group{GroupFile}), TracksFiles: true})
			e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_FSTAT, Numbers: 1, Pid: 77, Cgroup: 1}, Numbers: [6]uint64{3}}
			if r := d.Decode(&e); string(r.Path) != tc.path || r.Container != tc.container {
				t.Errorf("path %q, container %q, want %q and %q", r.Path, r.Container, tc.path, tc.container)
			}
		})
	}
}

// A process outside of the Pod starts one in the Pod's cgroup, as runc does with clone3. The trace reads the state of the new one, because
// it reads nothing of the other.
func TestProcessThatStartsInTheCgroup(t *testing.T) {
	const uid, id = "0f7c5a4e-1b0c-4e0e-9d1c-000000000001", "00000000000000000000000000000000000000000000000000000000000000aa"
	const outside, child = 50, 77
	for name, parent := range map[string]string{"that runs": "0::/system.slice/containerd.service", "that has ended": ""} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for pid, cgroup := range map[int]string{outside: parent, child: "0::/kubepods/pod" + uid + "/" + id} {
				dir := filepath.Join(root, strconv.Itoa(pid))
				if cgroup == "" {
					continue
				}
				if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600); err != nil {
					t.Fatal(err)
				}
				for link, to := range map[string]string{"fd/3": "/srv/of-" + strconv.Itoa(pid), "cwd": "/home"} {
					if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
						t.Fatal(err)
					}
				}
			}
			d := New(Config{Node: process.Finder{Root: root}, PodUID: uid, Calls: Calls([]Group{GroupFile}), TracksFiles: true})
			d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindFork), Pid: child, Tid: child, Parent: outside, Cgroup: 1}})
			e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_FSTAT, Numbers: 1, Pid: child, Cgroup: 1}, Numbers: [6]uint64{3}}
			if got := string(d.Decode(&e).Path); got != "/srv/of-77" {
				t.Errorf("path %q", got)
			}
		})
	}
}

func TestContainerName(t *testing.T) {
	const kubelet = "/var/lib/kubelet/pods/0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f"
	for name, tc := range map[string]struct{ line, want string }{
		"the termination log":       {"812 790 8:1 " + kubelet + "/containers/web/5f3a9c11 /dev/termination-log rw,relatime - ext4 /dev/sda1 rw", "web"},
		"a volume":                  {"812 790 8:1 " + kubelet + "/volumes/kubernetes.io~empty-dir/v /data rw - ext4 /dev/sda1 rw", ""},
		"the hosts file":            {"812 790 8:1 " + kubelet + "/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw", ""},
		"something of the target's": {"812 790 8:1 / /pods/x/containers/fake/y rw - ext4 /dev/sda1 rw", ""},
		"short":                     {"812 790", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := containerName(tc.line); got != tc.want || ok != (tc.want != "") {
				t.Errorf("%q, %v, want %q", got, ok, tc.want)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	p := newProcess(&budget{left: maxNames})
	p.enter("/srv")
	p.opened(3, "/var/lib", false)
	p.opened(4, "socket:[77]", false)
	for name, tc := range map[string]struct {
		dir  int32
		path string
		want string
	}{
		"absolute":             {-100, "/etc//passwd", "/etc/passwd"},
		"from the directory":   {-100, "a/../b", "/srv/b"},
		"from an open one":     {3, "dpkg/status", "/var/lib/dpkg/status"},
		"the open file itself": {3, "", "/var/lib"},
		"from a socket":        {4, "x", ""},
		"from an unknown one":  {9, "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.locate(tc.dir, tc.path); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// The name is the kubelet's, by the container's ID in the cgroup: a process cannot pass for another container's by its mounts.
func TestContainerForSure(t *testing.T) {
	const (
		podUID      = "0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f"
		webID       = "00000000000000000000000000000000000000000000000000000000000000aa"
		unnamed     = "00000000000000000000000000000000000000000000000000000000000000bb"
		onContainer = "/kubepods/burstable/pod" + podUID + "/"
	)
	slug := strings.ReplaceAll(podUID, "-", "_")
	root := t.TempDir()
	links := filepath.Join(root, "var", "log", "containers")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(links, "web-0_shop_web-"+webID+".log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	forged := "812 790 8:1 /pods/" + podUID + "/containers/log/5f3a9c11 /dev/termination-log rw - tmpfs tmpfs rw\n"
	for name, tc := range map[string]struct {
		cgroup      string
		want        string
		sure        bool
		wantWritten string // in events
		exiting     bool
	}{
		"containerd, cgroupfs, v2":               {cgroup: "0::" + onContainer + webID, want: "web", sure: true, wantWritten: "web"},
		"containerd, cgroupfs, v1":               {cgroup: "8:pids:" + onContainer + webID + "\n0::/", want: "web", sure: true, wantWritten: "web"},
		"containerd, systemd":                    {cgroup: "0::/kubepods.slice/kubepods-pod" + slug + ".slice/cri-containerd-" + webID + ".scope", want: "web", sure: true, wantWritten: "web"},
		"CRI-O, systemd":                         {cgroup: "0::/kubepods.slice/kubepods-pod" + slug + ".slice/crio-" + webID + ".scope/container", want: "web", sure: true, wantWritten: "web"},
		"CRI-O, cgroupfs, v1":                    {cgroup: "5:pids:/kubepods/pod" + podUID + "/crio-" + webID, want: "web", sure: true, wantWritten: "web"},
		"a cgroup of its own that names another": {cgroup: "0::" + onContainer + webID + "/kubepods/pod" + podUID + "/" + unnamed, want: "web", sure: true, wantWritten: "web"},
		"a sandbox, or a new container":          {cgroup: "0::" + onContainer + unnamed, wantWritten: "log"},
		"a runtime's monitor":                    {cgroup: "0::/kubepods.slice/kubepods-pod" + slug + ".slice/crio-conmon-" + webID + ".scope", sure: true},
		"gone":                                   {wantWritten: "log"},
		"it ends, v1":                            {cgroup: "8:pids:/\n0::/", exiting: true, wantWritten: "log"},
		"of the node, v1":                        {cgroup: "8:pids:/\n0::/", sure: true},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			stat := "7 (a b) c) S 1 7 7 0 -1 4194560 0"
			if tc.exiting {
				stat = "7 (a b) c) Z 1 7 7 0 -1 4227148 0"
			}
			for file, text := range map[string]string{"mountinfo": forged, "cgroup": tc.cgroup, "stat": stat} {
				if text == "" {
					continue
				}
				if err := os.MkdirAll(filepath.Join(proc, "7"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(proc, "7", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := newResolver(process.Finder{Root: proc, NodeRoot: root}, "")
			if err := r.readNames(); err != nil {
				t.Fatal(err)
			}
			if got, sure := r.containerForSure(7); got != tc.want || sure != tc.sure {
				t.Errorf("%q, %t, want %q, %t", got, sure, tc.want, tc.sure)
			}
			if got, _ := r.containerOf(7, 0); got != tc.wantWritten {
				t.Errorf("in events %q, want %q", got, tc.wantWritten)
			}
		})
	}
}

// A process without the mount that has the name does not take the name from the other processes of its cgroup.
func TestContainerIsNamedByAnyProcess(t *testing.T) {
	proc := t.TempDir()
	for pid, mounts := range map[string]string{
		"7": "901 900 0:61 / / rw - tmpfs tmpfs rw\n",
		"8": "812 790 8:1 /var/lib/kubelet/pods/uid/containers/web/5f3a9c11 /dev/termination-log rw - ext4 /dev/sda1 rw\n",
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "mountinfo"), []byte(mounts), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newResolver(process.Finder{Root: proc}, "")
	for _, step := range []struct {
		pid  uint32
		want string
	}{{7, ""}, {8, "web"}, {7, "web"}} {
		if got, _ := r.container(step.pid, 11); got != step.want {
			t.Errorf("process %d: %q, want %q", step.pid, got, step.want)
		}
	}
}

// A container that has just started shows another container's name in its mounts. It has that name only until the kubelet has made its
// link. So have the processes that it has forked meanwhile, and its connections.
func TestGuessedContainer(t *testing.T) {
	const uid, id, cgroup = "0f7c5a4e-1b0c-4e0e-9d1c-000000000001", "00000000000000000000000000000000000000000000000000000000000000aa", 11
	proc, root := t.TempDir(), t.TempDir()
	links := filepath.Join(root, "var/log/containers")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []string{"7", "8"} {
		if err := os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"cgroup":    "0::/kubepods/pod" + uid + "/" + id,
			"mountinfo": "812 790 8:1 /pods/x/containers/victim/y /forged rw - ext4 /dev/sda1 rw\n",
			"stat":      "7 (web) S 1 7 7 0 -1 4194560 0",
		} {
			if err := os.WriteFile(filepath.Join(proc, pid, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := New(Config{Node: process.Finder{Root: proc, NodeRoot: root}, PodUID: uid, Calls: Calls([]Group{GroupSignal})})
	if err := d.ReadContainers(); err != nil {
		t.Fatal(err)
	}
	at := kernel.BootTime()
	container := func(kind kernel.Kind, pid, parent uint32, tcp *kernel.TCP) string {
		return d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kind), Pid: pid, Tid: 9, Parent: parent, Cgroup: cgroup, Time: at}, TCP: tcp}).Container
	}
	container(kernel.KindSignal, 7, 0, nil)
	if got := container(kernel.KindFork, 8, 7, nil); got != "victim" {
		t.Fatalf("before the link the container is %q, want the guess", got)
	}
	if err := os.WriteFile(filepath.Join(links, "web-0_shop_web-"+id+".log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := at + uint64(10*time.Second); at < end && container(kernel.KindSignal, 7, 0, nil) != "web"; at = kernel.BootTime() {
		time.Sleep(time.Millisecond) // between two events
	}
	for name, got := range map[string]string{
		"the process":  container(kernel.KindSignal, 7, 0, nil),
		"its child":    container(kernel.KindSignal, 8, 0, nil),
		"a connection": container(kernel.KindConnection, 7, 0, &kernel.TCP{}),
	} {
		if got != "web" {
			t.Errorf("%s: container %q, want web", name, got)
		}
	}
}

// The cgroup of a process that ran before the trace is not known until its first event. If that is the start of a child, no name of its
// container is kept for the processes of others.
func TestGuessOfAProcessWithoutACgroup(t *testing.T) {
	const uid = "0f7c5a4e-1b0c-4e0e-9d1c-000000000001"
	ids := map[uint32]string{7: strings.Repeat("a", 64), 8: strings.Repeat("b", 64)}
	proc, root := t.TempDir(), t.TempDir()
	links := filepath.Join(root, "var/log/containers")
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for pid, id := range ids {
		dir := filepath.Join(proc, strconv.Itoa(int(pid)))
		if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"cgroup": "0::/kubepods/pod" + uid + "/" + id, "stat": "7 (web) S 1 7 7 0 -1 4194560 0"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := New(Config{Node: process.Finder{Root: proc, NodeRoot: root}, PodUID: uid, Calls: Calls([]Group{GroupProcess})})
	for _, pid := range []int{7, 8} {
		d.AddProcess(pid, func(int32) bool { return false })
	}
	for pid, name := range map[uint32]string{7: "web", 8: "sidecar"} {
		if err := os.WriteFile(filepath.Join(links, "web-0_shop_"+name+"-"+ids[pid]+".log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.ReadContainers(); err != nil {
		t.Fatal(err)
	}
	later := kernel.BootTime() + uint64(time.Hour) // the names of both processes are due
	for parent, wrong := range map[uint32]string{7: "sidecar", 8: "web"} {
		fork := kernel.Head{Kind: uint8(kernel.KindFork), Pid: 10 * parent, Tid: 10 * parent, Parent: parent, Cgroup: uint64(parent), Time: later}
		if got := d.Decode(&kernel.Record{Head: &fork}).Container; got == wrong { // the child has ended: /proc does not have it
			t.Errorf("the container of a child of %d is %q", parent, got)
		}
	}
}

// A descriptor of a process that ran before the trace keeps its path over an exec only if the kernel said that it stays open.
// Otherwise another file may have its number then.
func TestDescriptorsAfterAnExec(t *testing.T) {
	const pid = 77
	root := t.TempDir()
	dir := filepath.Join(root, "77", "fd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for fd, to := range map[string]string{"0": "/srv/in", "3": "/srv/closed", "40": "/srv/kept"} {
		if err := os.Symlink(to, filepath.Join(dir, fd)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		keeps func(int32) bool // nil: the process is read at its first event
		want  map[int]string
	}{
		"known":                         {keeps: func(fd int32) bool { return fd != 3 }, want: map[int]string{0: "/srv/in", 3: "", 40: "/srv/kept"}},
		"unknown":                       {keeps: func(int32) bool { return false }, want: map[int]string{0: "", 3: "", 40: ""}},
		"read when the trace has begun": {want: map[int]string{0: "", 3: "", 40: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			d := target{New(Config{Node: process.Finder{Root: root}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true}), t}
			if tc.keeps != nil {
				d.AddProcess(pid, tc.keeps)
			}
			if got := d.read(pid, 3); got != "/srv/closed" {
				t.Errorf("before the exec descriptor 3 has the path %q", got)
			}
			d.event(kernel.KindExec, pid, 0)
			for fd, want := range tc.want {
				if got := d.read(pid, fd); got != want {
					t.Errorf("descriptor %d has the path %q, want %q", fd, got, want)
				}
			}
		})
	}
}

// Only such files of a process's /proc are read that never wait for it. For an epoll that watches a file of FUSE, fdinfo waits for the
// file's server. Memory may be such a file, too.
func TestReadsNothingThatWaitsForTheProcess(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "77")
	for _, sub := range []string{"fd", "fdinfo"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("anon_inode:[eventpoll]", filepath.Join(dir, "fd", "3")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"fdinfo/3", "cmdline", "environ", "auxv", "maps", "smaps", "numa_maps", "mem"} {
		if err := unix.Mkfifo(filepath.Join(dir, file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan string)
	go func() {
		d := target{New(Config{Node: process.Finder{Root: root}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true}), t}
		d.AddProcess(77, func(int32) bool { return true })
		d.event(kernel.KindExec, 77, 0)
		done <- d.read(77, 3)
	}()
	select {
	case got := <-done:
		if got != "anon_inode:[eventpoll]" {
			t.Errorf("path %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for ever")
	}
}

// A process whose first event is an exec is read after that: what it has open is what the exec left open. So is one that has started
// a program from another thread than its first: the first one's end is recorded before.
func TestDescriptorsReadAfterAnExec(t *testing.T) {
	const pid = 77
	root := t.TempDir()
	dir := filepath.Join(root, "77", "fd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/srv/out", filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string][]kernel.Kind{"its first event": nil, "by another thread": {kernel.KindExit}} {
		t.Run(name, func(t *testing.T) {
			d := target{New(Config{Node: process.Finder{Root: root}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true}), t}
			if before != nil {
				d.AddProcess(pid, func(int32) bool { return true })
			}
			for _, kind := range append(before, kernel.KindExec) {
				d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kind), Pid: pid, Tid: pid, Cgroup: 1}})
			}
			if got := d.read(pid, 1); got != "/srv/out" {
				t.Errorf("path %q", got)
			}
		})
	}
}

// A trace that names no descriptor reads none: the kernel holds a file while its name is read.
func TestOpenFilesAreLeftOut(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7", "fd"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"cwd": "/home", "fd/3": "/three"} {
		if err := os.Symlink(to, filepath.Join(proc, "7", link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, leftOut := range []bool{false, true} {
		d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls(AllGroups())})
		d.ReadFiles(!leftOut)
		d.AddProcess(7, func(int32) bool { return false })
		p, want := d.resolver.processes[7], "/three"
		if leftOut {
			want = ""
		}
		if p.cwd != "/home" || p.name(3) != want {
			t.Errorf("left out: %t: the working directory %q and the file %q, want /home and %q", leftOut, p.cwd, p.name(3), want)
		}
	}
}
