package ebpffilter_test

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/filters/simulator"
	"github.com/sonde-operator/sonde/test/privileged"
)

// large is the length of a frame that is larger than a page: a packet socket sends it with only the Ethernet header in
// the linear part.
const large = 5000

// observed is the report of the program below about a packet.
type observed struct{ Result, Linear, Count uint32 }

// TestLinearPartInKernel filters real packets by bytes outside of their linear part.
func TestLinearPartInKernel(t *testing.T) {
	privileged.Need(t)
	captured, peer := vethPair(t)
	data := make([]byte, large)
	for i := range data {
		data[i] = byte(i * 7)
	}
	copy(data[12:], []byte{0x88, 0xb5, 0x46})
	for name, program := range map[string]bpfprog.Program{
		"bytes": returnA(
			op(ldh, 12), op(unix.BPF_ST, 0), // before the end of the linear part
			op(ldw, 12), op(unix.BPF_ST, 1), // across it
			op(ldb, large-1), op(unix.BPF_ST, 2),
			op(ldxi, large-10), op(ldwX, 6), op(unix.BPF_ST, 3),
			op(ldxi, 3), op(ldhX, 10), op(unix.BPF_ST, 4), // across it
			op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, 14), op(ldbX, 100),
			op(ldxm, 0), op(alu|unix.BPF_ADD|byX, 0), op(alu|unix.BPF_MUL, 3),
			op(ldxm, 1), op(alu|unix.BPF_ADD|byX, 0), op(alu|unix.BPF_MUL, 3),
			op(ldxm, 2), op(alu|unix.BPF_ADD|byX, 0), op(alu|unix.BPF_MUL, 3),
			op(ldxm, 3), op(alu|unix.BPF_ADD|byX, 0), op(alu|unix.BPF_MUL, 3),
			op(ldxm, 4), op(alu|unix.BPF_ADD|byX, 0),
		),
		"beyond":         {op(ldh, large-1), op(ret, 1)},
		"beyond after X": {op(ldxi, large-2), op(ldwX, 0), op(ret, 1)},
	} {
		want, err := simulator.Classic(program, &simulator.Packet{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		results, detach := attach(t, captured, program, false) // not in a subtest, which would run on another thread
		for _, size := range []int{1000, large} {
			got := sendAndObserve(t, peer, results, data[:size])
			if size == large && (got.Result != want || got.Linear >= large) {
				t.Errorf("%s: %#x of a packet with %d bytes in the linear part, want %#x", name, got.Result, got.Linear, want)
			}
			if size < large && (got.Result != 0 || got.Linear != uint32(size)) {
				t.Errorf("%s: %#x of a small packet with %d bytes in the linear part", name, got.Result, got.Linear)
			}
		}
		detach()
		if want == 0 {
			continue
		}
		results, detach = attach(t, captured, program, true)
		if got := sendAndObserve(t, peer, results, data); got.Result != want || got.Linear >= large {
			t.Errorf("%s, in line: %#x of a packet with %d bytes in the linear part, want %#x", name, got.Result, got.Linear, want)
		}
		detach()
	}
}

// vethPair enters a network namespace of its own for the rest of the test, which ends with the thread.
func vethPair(t *testing.T) (captured, peer netlink.Link) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	// The kernel's own neighbour discovery would also be counted.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = "captured", 9000
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "peer", PeerMTU: 9000}); err != nil {
		t.Fatal(err)
	}
	both := make([]netlink.Link, 2)
	for i, name := range []string{"captured", "peer"} {
		var err error
		if both[i], err = netlink.LinkByName(name); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(both[i]); err != nil {
			t.Fatal(err)
		}
	}
	return both[0], both[1]
}

// attach runs a filter on the packets that arrive at an interface, and writes its results into a map. With inline it
// writes only accepted packets.
func attach(t *testing.T, at netlink.Link, filter bpfprog.Program, inline bool) (*ebpf.Map, func()) {
	t.Helper()
	body, err := ebpffilter.Translate(filter)
	if err != nil {
		t.Fatal(err)
	}
	results, err := ebpf.NewMap(&ebpf.MapSpec{Name: "results", Type: ebpf.Array, KeySize: 4, ValueSize: 12, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = results.Close() })
	spec := loadtest.Spec()
	spec.Instructions = append(writer(spec.Instructions[0], results), spec.Instructions[2:]...)
	if err := ebpffilter.Replace(spec, loadtest.Function, body); err != nil {
		t.Fatal(err)
	}
	if inline {
		if err := ebpffilter.Inline(spec, loadtest.Function, filter, 0); err != nil {
			t.Fatal(err)
		}
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = program.Close() })
	attached, err := link.AttachTCX(link.TCXOptions{Interface: at.Attrs().Index, Program: program, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return results, func() { _ = attached.Close() }
	}
	if !errors.Is(err, ebpf.ErrNotSupported) {
		t.Fatal(err)
	}
	return results, attachBefore66(t, at, program)
}

// writer returns a program that calls the filter function and reports the packet.
func writer(function asm.Instruction, results *ebpf.Map) asm.Instructions {
	first := btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1).WithSymbol(function.Symbol()), btf.FuncMetadata(&function)).
		WithSource(function.Source())
	return asm.Instructions{
		first,
		asm.Call.Label(loadtest.Function),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMem(asm.R1, asm.R6, 76, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, 80, asm.Word),
		asm.Sub.Reg(asm.R8, asm.R1),
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, results.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreMem(asm.R0, 0, asm.R7, asm.Word),
		asm.StoreMem(asm.R0, 4, asm.R8, asm.Word),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.Word),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// attachBefore66 attaches as kernels before 6.6 can.
func attachBefore66(t *testing.T, at netlink.Link, program *ebpf.Program) func() {
	t.Helper()
	queue := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: at.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(queue); err != nil {
		t.Fatal(err)
	}
	if err := netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL},
		Fd:          program.FD(), Name: "see", DirectAction: true,
	}); err != nil {
		t.Fatal(err)
	}
	return func() { _ = netlink.QdiscDel(queue) }
}

// sendAndObserve sends one frame from an interface and waits until the program at its peer has observed it.
func sendAndObserve(t *testing.T, from netlink.Link, results *ebpf.Map, frame []byte) observed {
	t.Helper()
	var before, after observed
	if err := results.Lookup(uint32(0), &before); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	kind := binary.NativeEndian.Uint16([]byte{0x88, 0xb5})
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: from.Attrs().Index, Protocol: kind}); err != nil {
		t.Fatal(err)
	}
	after = before
	for deadline := time.Now().Add(20 * time.Second); after.Count == before.Count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program did not see the frame")
		}
		if err := results.Lookup(uint32(0), &after); err != nil {
			t.Fatal(err)
		}
	}
	return after
}
