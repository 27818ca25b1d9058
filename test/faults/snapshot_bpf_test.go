//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// bpfKind is one of the kinds of objects that the kernel numbers, each from 1 on.
type bpfKind struct {
	name       string
	next, open uintptr // commands of bpf(2)
	// Where the name is in the kind's info (linux/bpf.h); a link has none.
	nameAt, until int
	// fdinfo is what /proc calls the number of one that a process holds.
	fdinfo string
}

var bpfKinds = []bpfKind{
	{"BPF program", unix.BPF_PROG_GET_NEXT_ID, unix.BPF_PROG_GET_FD_BY_ID, 64, 80, "prog_id"},
	{"BPF map", unix.BPF_MAP_GET_NEXT_ID, unix.BPF_MAP_GET_FD_BY_ID, 24, 40, "map_id"},
	{"BPF link", unix.BPF_LINK_GET_NEXT_ID, unix.BPF_LINK_GET_FD_BY_ID, 0, 0, "link_id"},
}

// bpfID names one object.
type bpfID struct {
	kind string
	id   uint32
}

// bpfObjects adds the BPF objects of the kernel, by type and name: their ids are new with each restart of a container
// where the cgroups are v2. The kernel is the machine's, on which others may trace: what only processes hold that are not
// of this cluster, nor this test, is left out. What nobody holds is left over, and counted.
func bpfObjects(t *testing.T, s snapshot) {
	t.Helper()
	var all []bpfID
	for _, k := range bpfKinds {
		for id := uint32(0); ; {
			attr := [4]uint32{id}
			if _, err := bpf(k.next, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); errors.Is(err, unix.ENOENT) {
				break
			} else if err != nil {
				t.Fatalf("list %ss: %v", k.name, err)
			}
			id = attr[1]
			all = append(all, bpfID{k.name, id})
		}
	}
	// After the list: what others make now is not in it, and what they held is asked for below.
	others := heldBy(func(pid int) bool { return pid != os.Getpid() && !ofThisCluster(pid) })
	for o := range heldBy(func(pid int) bool { return pid == os.Getpid() || ofThisCluster(pid) }) {
		delete(others, o)
	}
	for _, o := range all {
		if others[o] {
			continue
		}
		if name, ok := describeBPF(t, o); ok {
			s[o.kind+": "+name]++
		}
	}
}

// describeBPF returns type and name of an object; false if it is gone.
func describeBPF(t *testing.T, o bpfID) (string, bool) {
	t.Helper()
	k := kindOf(o)
	fd, err := k.openID(o.id)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	info := make([]byte, 512) // not on the stack, which may move
	get := struct {
		fd, length uint32
		info       uint64
	}{uint32(fd), uint32(len(info)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(info))))} //nolint:gosec // a descriptor
	_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&get), unsafe.Sizeof(get))
	runtime.KeepAlive(info)
	if err != nil {
		t.Fatalf("look at a %s: %v", k.name, err)
	}
	return strings.TrimSpace(fmt.Sprintf("type %d, %s", info[0], unix.ByteSliceToString(info[k.nameAt:k.until]))), true
}

func kindOf(o bpfID) bpfKind {
	return bpfKinds[slices.IndexFunc(bpfKinds, func(k bpfKind) bool { return k.name == o.kind })]
}

// openID returns a descriptor of an object, or ENOENT.
func (k bpfKind) openID(id uint32) (int, error) {
	attr := [4]uint32{id}
	fd, err := bpf(k.open, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	return int(fd), err //nolint:gosec // a descriptor
}

// bpf is bpf(2).
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

var bpfNumber = regexp.MustCompile(`(?m)^(prog_id|map_id|link_id):\s+(\d+)$`)

// heldBy lists the BPF objects that such processes of the machine hold: by descriptors, as /proc shows them, and the maps
// of the programs among them.
func heldBy(such func(pid int) bool) map[bpfID]bool {
	held := map[bpfID]bool{}
	procs, _ := filepath.Glob("/proc/[0-9]*") // never fails: the pattern is good
	for _, proc := range procs {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		fds, _ := filepath.Glob(proc + "/fd/*")
		asked, is := false, false
		for _, fd := range fds {
			// A process that ends while it is looked at holds nothing.
			if to, _ := os.Readlink(fd); !strings.HasPrefix(to, "anon_inode:bpf") {
				continue
			}
			if !asked {
				asked, is = true, such(pid)
			}
			if !is {
				break
			}
			info, _ := os.ReadFile(proc + "/fdinfo/" + filepath.Base(fd))
			for _, m := range bpfNumber.FindAllStringSubmatch(string(info), -1) {
				n, _ := strconv.ParseUint(m[2], 10, 32)
				i := slices.IndexFunc(bpfKinds, func(k bpfKind) bool { return k.fdinfo == m[1] })
				held[bpfID{bpfKinds[i].name, uint32(n)}] = true
			}
		}
	}
	for _, o := range slices.Collect(maps.Keys(held)) {
		if o.kind == bpfKinds[0].name {
			for _, id := range mapsOf(o.id) {
				held[bpfID{bpfKinds[1].name, uint32(id)}] = true
			}
		}
	}
	return held
}

// mapsOf a program, which it keeps although nobody else holds them.
func mapsOf(program uint32) []ebpf.MapID {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return nil // gone meanwhile
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil
	}
	ids, _ := info.MapIDs()
	return ids
}

// ofThisCluster reports whether a process is one of the cluster's nodes', Pods included.
func ofThisCluster(pid int) bool {
	instance := os.Getenv("SONDE_CLUSTER_INSTANCE")
	if instance == "0" {
		instance = ""
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(groups), "/sonde-cluster"+instance+"/")
}

// What a probe holds at least, by kind: less would mean that this test does not see what there is.
var (
	// Exec, fork, exit and the end of each call.
	tracersBPF = map[string]int{"BPF program": 4, "BPF link": 4, "BPF map": 1}
	// What comes in and what goes out, at eth0 and, once, at loopback; rings, interfaces and variables.
	tcxBPF    = map[string]int{"BPF program": 2, "BPF link": 3, "BPF map": 4}
	clsactBPF = map[string]int{"BPF program": 2, "BPF map": 4}
)

// bpfOf lists what an agent's probe holds, which is all of its programs with their links and maps.
func bpfOf(t *testing.T, agent *corev1.Pod, least map[string]int) []bpfID {
	t.Helper()
	id := containerID(agent, probe)
	found := slices.Collect(maps.Keys(heldBy(func(pid int) bool {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return err == nil && strings.Contains(string(groups), id)
	})))
	count := map[string]int{}
	for _, o := range found {
		count[o.kind]++
	}
	for kind, n := range least {
		if count[kind] < n {
			t.Errorf("the probe %s holds %v, want at least %v", agent.Name, count, least)
		}
	}
	return found
}

// bpf lists what the probes of a scene hold that are attached.
func (s *scene) bpf(t *testing.T) []bpfID {
	t.Helper()
	held := bpfOf(t, s.agents[tracing], tracersBPF)
	for _, st := range []stage{capturing, ending} {
		by := cluster.Backend(t, s.captures[st].(*sondev1.PacketCapture).Spec.Engine)
		found := bpfOf(t, s.agents[st], map[string]map[string]int{"tcx": tcxBPF, "clsact": clsactBPF}[by])
		if by == "afpacket" && len(found) > 0 {
			t.Errorf("%s by packet sockets holds %v", st, found)
		}
		held = append(held, found...)
	}
	return held
}

// awaitNoBPF waits until the kernel has none of these objects any more: it frees them a moment after the last that holds
// them is gone.
func awaitNoBPF(t *testing.T, objects []bpfID) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the probes' BPF objects gone", func(context.Context) error {
		var left []bpfID
		for _, o := range objects {
			fd, err := kindOf(o).openID(o.id)
			switch {
			case err == nil:
				_ = unix.Close(fd)
				left = append(left, o)
			case !errors.Is(err, unix.ENOENT):
				return err
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
