package record

import (
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Interface is one captured interface: its description in the files and its account.
type Interface struct {
	ID      uint32 // position of the description in every file
	Account InterfaceAccount

	desc  []byte
	start Counters // the account when the current file was begun
}

// Lose adds packets that passed the filter and did not reach a file. reason is the counter to add them to.
func (i *Interface) Lose(packets uint64, reason *uint64) {
	i.Account.Received += packets
	*reason += packets
}

// statistics is the interface's block at the end of a file; it covers that file alone. Wireshark shows isb_ifrecv and
// isb_ifdrop. As with dumpcap, they count the packets that passed the filter, and the ones among them that were lost
// before the file.
func (i *Interface) statistics(start, now uint64, in *Counters) pcapng.Statistics {
	a, m := &i.Account.Counters, &i.start
	osDrop := a.DroppedKernel + a.DroppedRing - m.DroppedKernel - m.DroppedRing
	dropped := osDrop + a.DroppedWriter - m.DroppedWriter
	received, written := a.Received-m.Received, in.Written
	now = max(now, start) // the node's clock may have been set back meanwhile
	return pcapng.Statistics{
		Interface: i.ID, Time: now, Start: start, End: now,
		Received: &received, IfDrop: &dropped, FilterAccept: &received, OSDrop: &osDrop, Delivered: &written,
	}
}

// statisticsLen is the length of every block that statistics makes: times and counters have fixed sizes.
var statisticsLen = uint64(len(pcapng.AppendStatistics(nil, new((&Interface{}).statistics(1, 1, &Counters{})))))

func stamp(ns uint64) time.Time { return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC() }
