package follow

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// The files of a ring describe the same interfaces again and again. The stream has each once, and sums their statistics. What is missing
// between two files counts as dropped, also if it has the description of a new interface.
func TestFilesOfARing(t *testing.T) {
	section := pcapng.AppendSection(nil, &pcapng.Section{})
	eth0 := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	eth1 := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth1", LinkType: pcapng.LinkTypeEthernet})
	of := func(iface uint32, at uint64) []byte {
		return pcapng.AppendPacket(nil, &pcapng.Packet{Interface: iface, Time: at, Data: []byte("data"), Length: 4})
	}
	counts := func(iface uint32, accepted, dropped uint64) []byte {
		return pcapng.AppendStatistics(nil, &pcapng.Statistics{Interface: iface, Time: 9, FilterAccept: &accepted, IfDrop: &dropped})
	}
	w := newWorld(t, 50*time.Millisecond)
	w.Update(update("a"))
	a := <-w.pods
	a.w.Gap(4, false) // overwritten before the stream began
	w.write(a, section, eth0, of(0, 10), counts(0, 2, 1))
	w.write(a, section, eth0, of(0, 20), counts(0, 1, 0))
	a.w.Gap(7, false) // removed before they were read
	w.write(a, section, eth0, eth1, of(1, 30), of(0, 40))
	w.write(a, counts(0, 4, 3), counts(1, 1, 0))
	w.write(a, section, eth0, eth1, of(1, 50))
	close(a.ended)
	r, got, stats := w.finish()
	if want := "[eth0 10 eth0 20 eth1 30 eth0 40 eth1 50]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if r.Earlier != 4 || r.Skipped != 7 || r.Packets != 5 {
		t.Errorf("%+v", r)
	}
	if len(stats) != 2 {
		t.Fatalf("statistics of %d interfaces, want 2", len(stats))
	}
	for i, want := range [][3]uint64{{7, 4 + 7, 3}, {1, 0, 2}} { // FilterAccept, IfDrop, Delivered
		if st := stats[i]; *st.FilterAccept != want[0] || *st.IfDrop != want[1] || *st.Delivered != want[2] {
			t.Errorf("interface %d: %d passed the filter, %d dropped, %d delivered, want %d", i, *st.FilterAccept, *st.IfDrop, *st.Delivered, want)
		}
	}
}

// A section that describes another interface at the same place has a new interface.
func TestOtherInterfaceAtTheSamePlace(t *testing.T) {
	w := newWorld(t, 50*time.Millisecond)
	a := w.join("a")
	w.write(a, packet(10))
	w.write(a, pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: "b/eth0", LinkType: pcapng.LinkTypeRaw}), packet(20))
	w.write(a, pcapng.AppendSection(nil, &pcapng.Section{}))
	close(a.ended)
	if _, got, _ := w.finish(); fmt.Sprint(got) != "[a/eth0 10 b/eth0 20]" {
		t.Errorf("%v", got)
	}
}

// However many files a ring has, the memory for its interfaces stays the same.
func TestFilesOfARingTakeNoMemory(t *testing.T) {
	w := newWorld(t, time.Millisecond)
	a := w.join("a")
	for n := range 3 * maxInterfaces {
		w.write(a, pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: "a/eth0", LinkType: pcapng.LinkTypeEthernet}), packet(uint64(n)))
	}
	close(a.ended)
	if r, _, _ := w.finish(); r.Packets != 3*maxInterfaces || len(w.stats) != 1 {
		t.Errorf("%d packets, %d interfaces", r.Packets, len(w.stats))
	}
}
