//go:build faults

package faults

import (
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

// leftovers lists, for each kind of object on a node, a command that leaves one and a command that removes it.
var leftovers = map[string]struct {
	leave, remove string
	// want is part of the line by which a snapshot of the node shows it.
	want string
}{
	"link":          {"ip link add left type bridge", "ip link delete left", "link: left"},
	"address":       {"ip route add blackhole 192.0.2.0/24", "ip route delete blackhole 192.0.2.0/24", "route: blackhole"},
	"promiscuity":   {"ip link set cni0 promisc on", "ip link set cni0 promisc off", "promiscuity 1"},
	"qdisc":         {"tc qdisc replace dev lo root pfifo", "tc qdisc delete dev lo root", "pfifo"},
	"clsact":        {"tc qdisc add dev lo clsact", "tc qdisc delete dev lo clsact", "qdisc clsact"},
	"filter in":     {"tc qdisc add dev lo clsact; tc filter add dev lo ingress bpf bytecode '1,6 0 0 0'", "tc qdisc delete dev lo clsact", "ingress filter of lo: filter"},
	"filter out":    {"tc qdisc add dev lo clsact; tc filter add dev lo egress bpf bytecode '1,6 0 0 0'", "tc qdisc delete dev lo clsact", "egress filter of lo: filter"},
	"nft":           {"nft add table inet left", "nft delete table inet left", "nft: table inet left"},
	"packet socket": {"setsid dumpcap -q -i lo -w /dev/null >/dev/null 2>&1 & echo $! >/run/left; sleep 2", "kill -KILL $(cat /run/left); rm /run/left", "packet socket: "},
	"listener":      {"setsid busybox nc -l -p 7777 >/dev/null 2>&1 & echo $! >/run/left; sleep 1", "kill -KILL $(cat /run/left); rm /run/left", ":7777"},
	"process":       {"setsid sleep 1000 >/dev/null 2>&1 & echo $! >/run/left", "kill -KILL $(cat /run/left); rm /run/left", "process: sleep"},
	"mount":         {"mkdir -p /run/left && mount -t tmpfs left /run/left", "umount /run/left && rmdir /run/left", "mount: /run/left"},
	// The kubelet removes unknown volumes, except mounted ones.
	"Pod's files": {
		"mkdir -p /var/lib/kubelet/pods/left/v && mount -t tmpfs left /var/lib/kubelet/pods/left/v",
		"umount /var/lib/kubelet/pods/left/v; rmdir /var/lib/kubelet/pods/left/v /var/lib/kubelet/pods/left 2>/dev/null || true", "file: /var/lib/kubelet/pods/left",
	},
	"netns":          {"touch /run/netns/left", "rm /run/netns/left", "file: /run/netns/left"},
	"pinned BPF":     {"mkdir /sys/fs/bpf/left", "rmdir /sys/fs/bpf/left", "file: /sys/fs/bpf/left"},
	"cgroup":         {"mkdir $(ls -d /sys/fs/cgroup/memory/kubepods /sys/fs/cgroup/kubepods 2>/dev/null | head -1)/left", "rmdir $(ls -d /sys/fs/cgroup/memory/kubepods /sys/fs/cgroup/kubepods 2>/dev/null | head -1)/left", "kubepods/left"},
	"container task": {"mkdir /run/containerd/io.containerd.runtime.v2.task/k8s.io/left", "rmdir /run/containerd/io.containerd.runtime.v2.task/k8s.io/left", "container: left"},
}

// TestSnapshotFindsLeftovers is the control of the matrix: a snapshot finds each kind of object that could be left.
func TestSnapshotFindsLeftovers(t *testing.T) {
	before := takeSnapshot(t)
	for name, tc := range leftovers {
		t.Run(name, func(t *testing.T) {
			cluster.OnNode(t, hurt, "sh", "-c", tc.leave)
			changed := before.diff(takeSnapshot(t))
			cluster.OnNode(t, hurt, "sh", "-c", tc.remove)
			wantLine(t, changed, tc.want)
		})
	}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "left"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "left"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}},
	} {
		if err := cluster.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		changed := before.diff(takeSnapshot(t))
		cluster.DeleteNow(t, o)
		wantLine(t, changed, "left {")
	}
	t.Run("changed object", func(t *testing.T) {
		var node corev1.Node
		if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: hurt}, &node); err != nil {
			t.Fatal(err)
		}
		label := func(ctx context.Context, value string) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"left":`+value+`}}}`))
			if err := cluster.Admin.Patch(ctx, node.DeepCopy(), patch); err != nil {
				t.Fatal(err)
			}
		}
		label(t.Context(), `"here"`)
		changed := before.diff(takeSnapshot(t))
		label(t.Context(), "null")
		wantLine(t, changed, `"left":"here"`)
	})
	t.Run("BPF", func(t *testing.T) { findsBPF(t, before) })
	t.Run("tcx", func(t *testing.T) { findsTCX(t, before) })
	awaitSnapshot(t, before)
}

// TestTargetSnapshotFindsLeftovers is the same for snapshots inside a target.
func TestTargetSnapshotFindsLeftovers(t *testing.T) {
	s := &scene{}
	s.makeTargets(t)
	before := insideTarget(t, s.sink)
	pid := pids(t, s.sink, "c")[0]
	for name, tc := range map[string]struct{ leave, remove, want string }{
		"link":        {"nsenter -t %s -n ip link add left type bridge", "nsenter -t %s -n ip link delete left", "link: left"},
		"promiscuity": {"nsenter -t %s -n ip link set eth0 promisc on", "nsenter -t %s -n ip link set eth0 promisc off", "promiscuity 1"},
		"qdisc":       {"nsenter -t %s -n tc qdisc replace dev lo root pfifo", "nsenter -t %s -n tc qdisc delete dev lo root", "pfifo"},
		"clsact":      {"nsenter -t %s -n tc qdisc add dev lo clsact", "nsenter -t %s -n tc qdisc delete dev lo clsact", "clsact"},
		"filter in": {
			"nsenter -t %s -n tc qdisc add dev lo clsact; nsenter -t %s -n tc filter add dev lo ingress bpf bytecode '1,6 0 0 0'", "nsenter -t %s -n tc qdisc delete dev lo clsact", "traffic control: filter",
		},
		"filter out": {
			"nsenter -t %s -n tc qdisc add dev lo clsact; nsenter -t %s -n tc filter add dev lo egress bpf bytecode '1,6 0 0 0'", "nsenter -t %s -n tc qdisc delete dev lo clsact", "traffic control: filter",
		},
		"nft":           {"nsenter -t %s -n nft add table inet left", "nsenter -t %s -n nft delete table inet left", "nft: table inet left"},
		"packet socket": {"setsid nsenter -t %s -n dumpcap -q -i lo -w /dev/null >/dev/null 2>&1 & echo $! >/run/left; sleep 2", "kill -KILL $(cat /run/left); rm /run/left", "packet socket: "},
		"mount":         {"mount -N %s -t tmpfs left /dev/shm", "umount -N %s /dev/shm", "mount: "},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.OnNode(t, hurt, "sh", "-c", strings.ReplaceAll(tc.leave, "%s", pid))
			changed := before.diff(insideTarget(t, s.sink))
			cluster.OnNode(t, hurt, "sh", "-c", strings.ReplaceAll(tc.remove, "%s", pid))
			wantLine(t, changed, tc.want)
		})
	}
	await(t, before, "the target's namespaces", func() snapshot { return insideTarget(t, s.sink) })
}

func wantLine(t *testing.T, changed []string, want string) {
	t.Helper()
	for _, line := range changed {
		if strings.HasPrefix(line, "+") && strings.Contains(line, want) {
			return
		}
	}
	t.Errorf("the snapshot has no line with %q, but\n%s", want, strings.Join(changed, "\n"))
}

// findsBPF loads a map and a program and looks for them in a snapshot.
func findsBPF(t *testing.T, before snapshot) {
	t.Helper()
	// union bpf_attr of BPF_MAP_CREATE: an array of one entry of 4 bytes; the name is at offset 28.
	var array [48]byte
	for i, v := range []uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1} {
		binary.NativeEndian.PutUint32(array[4*i:], v)
	}
	copy(array[28:], "left_map")
	fd, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&array), unsafe.Sizeof(array))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(int(fd)) //nolint:gosec // a descriptor
	// A socket filter: r0 = 0; exit.
	code := []byte{0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0}
	license := []byte("GPL\x00")
	load := struct {
		kind, count       uint32
		code, license     uint64
		logLevel, logSize uint32
		log               uint64
		version, flags    uint32
		name              [16]byte
	}{
		kind: unix.BPF_PROG_TYPE_SOCKET_FILTER, count: 2,
		code: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(code)))), license: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(license)))),
	}
	copy(load.name[:], "left_prog")
	program, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(int(program)) //nolint:gosec // a descriptor
	changed := before.diff(takeSnapshot(t))
	wantLine(t, changed, "left_map")
	wantLine(t, changed, "left_prog")
}

// findsTCX attaches a program at tcx, as captures do, in a network namespace that the nodes do not know.
func findsTCX(t *testing.T, before snapshot) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "left_tcx", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}, // TCX_NEXT
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	attached := make(chan error)
	var l link.Link
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace, which the link outlives
		attached <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			l, err = link.AttachTCX(link.TCXOptions{Interface: 1, Program: program, Attach: ebpf.AttachTCXEgress})
			return err
		}()
	}()
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	changed := before.diff(takeSnapshot(t))
	wantLine(t, changed, "left_tcx")
	wantLine(t, changed, "BPF link: type 11") // BPF_LINK_TYPE_TCX
}
