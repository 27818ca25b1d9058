package capture

import (
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// track is one interface as the recorder sees it: its description and its account.
type track struct {
	id   uint32 // position of its description in every file
	desc []byte
	acct InterfaceAccount
	mark Counters // the account when the current file was begun
}

// lose adds packets that passed the filter and did not reach a file.
func (t *track) lose(n uint64, where *uint64) {
	t.acct.Received += n
	*where += n
}

// statistics is the interface's block at the end of a file, of that file's own time. Wireshark shows isb_ifrecv and
// isb_ifdrop, so that these carry, as with dumpcap, what passed the filter and what was lost of it before the file.
func (t *track) statistics(start, now uint64, in *Counters) pcapng.Statistics {
	a, m := &t.acct.Counters, &t.mark
	osDrop := a.DroppedKernel + a.DroppedRing - m.DroppedKernel - m.DroppedRing
	dropped := osDrop + a.DroppedWriter - m.DroppedWriter
	received, written := a.Received-m.Received, in.Written
	now = max(now, start) // the node's clock may have been set back meanwhile
	return pcapng.Statistics{
		Interface: t.id, Time: now, Start: start, End: now,
		Received: &received, IfDrop: &dropped, FilterAccept: &received, OSDrop: &osDrop, Delivered: &written,
	}
}

// statisticsLen is the length of every block that statistics makes: times and counters have fixed sizes.
var statisticsLen = uint64(len(pcapng.AppendStatistics(nil, new((&track{}).statistics(1, 1, &Counters{})))))

func stamp(ns uint64) time.Time { return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC() }
