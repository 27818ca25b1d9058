package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
)

// Counts has one of the two, according to the kind of capture.
type Counts struct {
	*PacketCounts
	*EventCounts
}

// PacketCounts counts packets, and the bytes of those that were captured.
type PacketCounts struct {
	Packets       int64 `json:"packets"`
	Bytes         int64 `json:"bytes"`
	Dropped       int64 `json:"dropped"`
	DroppedKernel int64 `json:"droppedKernel"`
	DroppedRing   int64 `json:"droppedRing"`
	DroppedWriter int64 `json:"droppedWriter"`
	Truncated     int64 `json:"truncated"`
	Overwritten   int64 `json:"overwritten"`
}

// EventCounts counts the events of a trace.
type EventCounts struct {
	Events int64 `json:"events"`
	Lost   int64 `json:"lost"`
	// LostBy counts them by the place where they were lost.
	LostBy map[string]int64 `json:"lostBy,omitempty"`
	// Size of the files according to the account, in bytes.
	Size int64 `json:"-"`
}

func newCounts(u live.Unit) Counts {
	if u == live.Events {
		return Counts{EventCounts: &EventCounts{}}
	}
	return Counts{PacketCounts: &PacketCounts{}}
}

// add adds the counts of one Pod.
func (c Counts) add(p v1alpha1.PodResult) {
	if e := c.EventCounts; e != nil {
		e.Events += p.Events
		e.Size += p.Bytes
		e.Lost += p.LostEvents()
		for place, n := range p.Lost {
			if e.LostBy == nil {
				e.LostBy = map[string]int64{}
			}
			e.LostBy[place] += n
		}
		return
	}
	n := c.PacketCounts
	n.Packets += p.Packets
	n.Bytes += p.Bytes
	n.Dropped += p.Dropped.Total()
	n.DroppedKernel += p.Dropped.Kernel
	n.DroppedRing += p.Dropped.Ring
	n.DroppedWriter += p.Dropped.Writer
	n.Truncated += p.Truncated
	n.Overwritten += p.Overwritten
}

// notes describes packets or events that the files lack.
func (c Counts) notes() []string {
	var notes []string
	if e := c.EventCounts; e != nil {
		if e.Lost > 0 {
			var places []string
			for _, place := range slices.Sorted(maps.Keys(e.LostBy)) {
				places = append(places, fmt.Sprintf("%s %d", place, e.LostBy[place]))
			}
			notes = append(notes, fmt.Sprintf("%d events were lost and are in no file (%s)", e.Lost, strings.Join(places, ", ")))
		}
		return notes
	}
	if n := c.Dropped; n > 0 {
		notes = append(notes, fmt.Sprintf("%d packets were dropped: they matched the filter but are in no file", n))
	}
	if n := c.Overwritten; n > 0 {
		notes = append(notes, fmt.Sprintf("%d older packets were overwritten by newer ones, as rotate requests", n))
	}
	return notes
}

// heads are the headings of the columns of cells.
func (c Counts) heads() []string {
	if c.EventCounts != nil {
		return []string{"EVENTS", "BYTES", "LOST"}
	}
	heads := []string{"PACKETS", "BYTES", "DROPPED", "TRUNCATED"}
	if c.Truncated == 0 {
		// Without this column of zeros, lines with names of usual length fit a terminal.
		heads = heads[:len(heads)-1]
	}
	return heads
}

func (c Counts) cells() []string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	if e := c.EventCounts; e != nil {
		return []string{n(e.Events), live.Bytes(e.Size), n(e.Lost)}
	}
	return []string{n(c.Packets), live.Bytes(c.Bytes), n(c.Dropped), n(c.Truncated)}
}
