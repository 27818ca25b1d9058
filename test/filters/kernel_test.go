package filters

import (
	"encoding/binary"
	"errors"
	"flag"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/filters/simulator"
	"github.com/sonde-operator/sonde/test/privileged"
)

// Package loadtest explains why there are not more.
var loads = flag.Int("loads", 40, "number of filters to load into the kernel, a quarter of them for raw IP")

// ofEach is the number of packets of each verdict on which a program runs.
const ofEach = 8

// TestInKernel loads a sample of the translated filters into the kernel, whose verifier must accept each. It runs them
// there on some packets that they refuse and some that they accept.
func TestInKernel(t *testing.T) {
	privileged.Need(t)
	runs := 0
	for link, n := range map[pcapfilter.LinkType]int{pcapfilter.LinkEthernet: *loads * 3 / 4, pcapfilter.LinkRaw: *loads / 4} {
		packets := packetsOf(t, link)
		all := compiled(t, link, count(link))
		for i := range n {
			runs += inKernel(t, all[i*len(all)/n], packets)
		}
	}
	t.Logf("%d programs loaded, %d runs", loadtest.Loads(), runs)
}

// inKernel runs a filter in the kernel as a function, and inlined.
func inKernel(t *testing.T, e expression, packets []packet) int {
	t.Helper()
	body, err := ebpffilter.Translate(e.program, ebpffilter.AtIngress())
	spec, err2 := loadtest.Inlined(e.program, ebpffilter.AtIngress())
	if err := errors.Join(err, err2); err != nil {
		t.Errorf("%s: %v", e.text, err)
		return 0
	}
	program, err := loadtest.Load(t, body)
	if err != nil {
		t.Errorf("%s: load: %+v", e.text, err)
		return 0
	}
	defer func() { _ = program.Close() }()
	inline, err := loadtest.LoadSpec(t, spec)
	if err != nil {
		t.Errorf("%s: load inlined: %+v", e.text, err)
		return 0
	}
	defer func() { _ = inline.Close() }()
	runs, left := 0, map[byte]int{'0': ofEach, '1': ofEach}
	for i := range packets {
		packet, ok := asRunInKernel(packets[i].sim)
		if !ok {
			continue
		}
		want, err := simulator.Classic(e.program, &packet)
		if err != nil {
			t.Errorf("%s: %s: %v", e.text, packets[i].name, err)
			return runs
		}
		if left[verdict(want)]--; left[verdict(want)] < 0 {
			continue
		}
		got, err := loadtest.Run(program, packet.Data, 0)
		if err != nil || got != want {
			t.Errorf("%s: %s: the kernel returns %#x (%v), want %#x as in the simulator", e.text, packets[i].name, got, err, want)
		}
		if got, err := loadtest.Run(inline, packet.Data, 0); err != nil || got != min(want, 1) {
			t.Errorf("%s: %s: inlined, the kernel returns %#x (%v), want %#x as in the simulator", e.text, packets[i].name, got, err, want)
		}
		runs++
	}
	return runs
}

// asRunInKernel returns a packet as BPF_PROG_TEST_RUN presents it: as an Ethernet frame that the loopback interface
// received, without other metadata. It accepts no cut IP header.
func asRunInKernel(p simulator.Packet) (simulator.Packet, bool) {
	if len(p.Data) < 14 || len(p.Data) > 2000 || p.VlanPresent == 1 || p.Type == unix.PACKET_OUTGOING {
		return p, false
	}
	least := map[uint16]int{unix.ETH_P_IP: 14 + 20, unix.ETH_P_IPV6: 14 + 40}
	if len(p.Data) < least[binary.BigEndian.Uint16(p.Data[12:])] {
		return p, false
	}
	p.Interface, p.Type = 1, unix.PACKET_OTHERHOST
	return p, true
}
