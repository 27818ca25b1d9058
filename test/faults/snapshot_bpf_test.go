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

// bpfKind is one of the kinds of BPF objects; the kernel numbers each kind from 1.
type bpfKind struct {
	name       string
	next, open uintptr // commands of bpf(2)
	// Position of the name in the kind's info (linux/bpf.h); a link has none.
	nameAt, until int
	// fdinfo is the key in /proc/PID/fdinfo that holds the ID of such an object.
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

// bpfObjects adds the kernel's BPF objects by type and name. Their IDs change with each restart of a container under
// cgroup v2. Others may trace on this machine too, so objects held only by processes outside this cluster and this test
// are left out. Objects that no process holds count as leftovers.
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
	// Read this after the list. It then covers every holder of a listed object, and objects created since are not in
	// the list.
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
	info := make([]byte, 512) // allocated on the heap, because the stack may move
	get := struct {
		fd, length uint32
		info       uint64
	}{uint32(fd), uint32(len(info)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(info))))} //nolint:gosec // a descriptor
	_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&get), unsafe.Sizeof(get))
	runtime.KeepAlive(info)
	if err != nil {
		t.Fatalf("read the info of a %s: %v", k.name, err)
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

// bpf is the system call bpf(2).
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

var bpfNumber = regexp.MustCompile(`(?m)^(prog_id|map_id|link_id):\s+(\d+)$`)

// heldBy lists the BPF objects that matching processes hold: those behind descriptors in /proc, and the maps of the
// programs among them.
func heldBy(such func(pid int) bool) map[bpfID]bool {
	held := map[bpfID]bool{}
	procs, _ := filepath.Glob("/proc/[0-9]*") // never fails: the pattern is good
	for _, proc := range procs {
		pid, _ := strconv.Atoi(filepath.Base(proc))
		fds, _ := filepath.Glob(proc + "/fd/*")
		asked, is := false, false
		for _, fd := range fds {
			// A process that ends during the check holds nothing.
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

// mapsOf returns the maps that a program uses, which keeps them alive.
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

// ofThisCluster reports whether a process belongs to one of the cluster's nodes, including Pods.
func ofThisCluster(pid int) bool {
	instance := os.Getenv("SONDE_CLUSTER_INSTANCE")
	if instance == "0" {
		instance = ""
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(groups), "/sonde-cluster"+instance+"/")
}

// Minimum number of objects that a probe holds, by kind. Fewer would mean that this test misses some.
var (
	// Exec, fork, exit and the end of each call.
	tracersBPF = map[string]int{"BPF program": 4, "BPF link": 4, "BPF map": 1}
	// Ingress and egress at eth0 and, once, at loopback; rings, interfaces and variables.
	tcxBPF    = map[string]int{"BPF program": 2, "BPF link": 3, "BPF map": 4}
	clsactBPF = map[string]int{"BPF program": 2, "BPF map": 4}
)

// bpfOf lists the objects that an agent's probe holds, which are all of its programs with their links and maps.
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

// bpf lists the objects of the attached probes in a scene.
func (s *scene) bpf(t *testing.T) []bpfID {
	t.Helper()
	held := bpfOf(t, s.agents[tracing], tracersBPF)
	for _, st := range []stage{capturing, ending} {
		by := cluster.Backend(t, s.captures[st].(*sondev1.PacketCapture).Spec.Engine)
		found := bpfOf(t, s.agents[st], map[string]map[string]int{"tcx": tcxBPF, "clsact": clsactBPF}[by])
		if by == "afpacket" && len(found) > 0 {
			t.Errorf("%s with packet sockets holds %v, want none", st, found)
		}
		held = append(held, found...)
	}
	return held
}

// awaitNoBPF waits until the kernel has freed these objects, which takes a moment after the last holder has gone.
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
			return fmt.Errorf("BPF objects are left: %v", left)
		}
		return nil
	})
}
