package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeProc writes a process file system with the given processes.
type fakeProc struct {
	pid    int
	cgroup string
	comm   string
	state  byte
	start  int
}

func writeProc(t *testing.T, procs ...fakeProc) Finder {
	t.Helper()
	root := t.TempDir()
	for _, p := range procs {
		dir := filepath.Join(root, strconv.Itoa(p.pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (%s) %c 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 10\n", p.pid, p.comm, p.state, p.start)
		for name, text := range map[string]string{"cgroup": p.cgroup, "stat": stat} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"self", "sys", "12x"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Finder{Root: root}
}

// A node may have more processes than are listed at a time.
func TestPodAmongManyProcesses(t *testing.T) {
	const many = 2*processesAtOnce + 1
	in := "0::/kubepods/pod" + uid + "/" + id + "\n"
	f := writeProc(t, fakeProc{1, in, "first", 'S', 1}, fakeProc{many + 1, in, "last", 'S', 2})
	for pid := range many - 1 {
		if err := os.Mkdir(filepath.Join(f.Root, strconv.Itoa(pid+2)), 0o755); err != nil { // it ends during the search
			t.Fatal(err)
		}
	}
	got, err := f.Pod(uid)
	if diff := cmp.Diff([]Process{{1, id, 1}, {many + 1, id, 2}}, got); err != nil || diff != "" {
		t.Errorf("%v, processes (-want +got):\n%s", err, diff)
	}
}

func TestPodFindsOwnLivingProcesses(t *testing.T) {
	in := func(uid, id string) string { return "4:memory:/kubepods/pod" + uid + "/" + id + "\n0::/\n" }
	f := writeProc(t,
		fakeProc{1, "0::/init.scope\n", "systemd", 'S', 1},
		fakeProc{40, in(uid, id), "web (1) x", 'S', 300},
		fakeProc{41, in(uid, id2), "pause", 'S', 200},
		fakeProc{42, in(other, id), "neighbour", 'S', 210},
		fakeProc{43, in(uid, id), "dead", 'Z', 220},
		fakeProc{44, in(uid, id), "web", 'R', 300},
	)
	got, err := f.Pod(uid)
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{{41, id2, 200}, {40, id, 300}, {44, id, 300}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Pod (-want +got):\n%s", diff)
	}
	got, err = f.Container(uid, "containerd://"+id2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[:1], got); diff != "" {
		t.Errorf("Container (-want +got):\n%s", diff)
	}
	got, err = f.Pod(hash)
	if err != nil || len(got) != 0 {
		t.Errorf("a Pod that is not here: %v, %v", got, err)
	}
}

func TestPodRefusesInvalidUID(t *testing.T) {
	for _, bad := range []string{"", "web-1", uid + "0", "../" + uid} {
		if _, err := (Finder{}).Pod(bad); err == nil {
			t.Errorf("Pod(%q) did not fail", bad)
		}
	}
}

func TestPodReportsBrokenStat(t *testing.T) {
	f := writeProc(t, fakeProc{7, "0::/kubepods/pod" + uid + "/" + id, "x", 'S', 1})
	if err := os.WriteFile(f.path(7, "stat"), []byte("7 (x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pod(uid); err == nil {
		t.Error("no error")
	}
}

// A container with a writable cgroup can make paths that are too long for the kernel to show (ENAMETOOLONG).
func TestUnreadableNeighbourHidesNoProcess(t *testing.T) {
	f := writeProc(t,
		fakeProc{40, "0::/kubepods/pod" + uid + "/" + id, "web", 'S', 300},
		fakeProc{41, "", "neighbour", 'S', 310},
		fakeProc{42, "0::/kubepods/pod" + uid + "/" + id, "broken", 'S', 320},
	)
	unreadable(t, f, 41)
	if err := os.WriteFile(f.path(42, "stat"), []byte("42 (x"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := f.Pod(uid)
	if diff := cmp.Diff([]Process{{40, id, 300}}, got); diff != "" || err != nil {
		t.Errorf("error %v, processes (-want +got):\n%s", err, diff)
	}
}

// A Pod is not gone while a process that cannot be read may be its own: the process would hide from its capture.
func TestUnreadableProcessMayBeThePods(t *testing.T) {
	f := writeProc(t, fakeProc{1, "0::/init.scope", "init", 'S', 1}, fakeProc{41, "", "hidden", 'S', 310})
	w := Watcher{Finder: f, UID: uid}
	if now, err := w.scan(); len(now.procs) != 0 || now.reason != GoneNoProcess || err != nil {
		t.Errorf("all readable: %+v, %v", now, err)
	}
	unreadable(t, f, 41)
	if now, err := w.scan(); len(now.procs) != 0 || now.reason != notGone || err != nil {
		t.Errorf("one unreadable: %+v, %v", now, err)
	}
}

// unreadable makes the cgroup of a process a directory, which fails to be read.
func unreadable(t *testing.T, f Finder, pid int) {
	t.Helper()
	if err := errors.Join(os.Remove(f.path(pid, "cgroup")), os.Mkdir(f.path(pid, "cgroup"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

func TestExiting(t *testing.T) {
	f := writeProc(t, fakeProc{7, "", "runs", 'S', 1}, fakeProc{8, "", "has (4 5 6 7 8 9 4) ended", 'Z', 1}, fakeProc{9, "", "broken", 'S', 1})
	for pid, stat := range map[int]string{8: "8 (has (4 5 6 7 8 9 4) ended) Z 1 1 1 0 -1 4227148 1 2 3", 9: "9 (broken) S 1"} {
		if err := os.WriteFile(f.path(pid, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pid, want := range map[int]bool{7: false, 8: true, 9: true, 10: true} {
		if got := f.Exiting(pid); got != want {
			t.Errorf("process %d: %v, want %v", pid, got, want)
		}
	}
}
