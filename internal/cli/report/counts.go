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

// Counts of what the capture took: one of the two is there.
type Counts struct {
	*PacketCounts
	*EventCounts
}

// PacketCounts are those of packets, and of the captured packets' bytes.
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

// EventCounts are those of a trace's events.
type EventCounts struct {
	Events int64 `json:"events"`
	Lost   int64 `json:"lost"`
	// LostBy says where.
	LostBy map[string]int64 `json:"lostBy,omitempty"`
	// Size of the files as the account has it; those that are saved have their own.
	Size int64 `json:"-"`
}

func newCounts(u live.Unit) Counts {
	if u == live.Events {
		return Counts{EventCounts: &EventCounts{}}
	}
	return Counts{PacketCounts: &PacketCounts{}}
}

// add one Pod's.
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

// notes say what the files do not have.
func (c Counts) notes() []string {
	var notes []string
	if e := c.EventCounts; e != nil {
		if e.Lost > 0 {
			var places []string
			for _, place := range slices.Sorted(maps.Keys(e.LostBy)) {
				places = append(places, fmt.Sprintf("%s %d", place, e.LostBy[place]))
			}
			notes = append(notes, fmt.Sprintf("%d events were lost, and are in no file (%s)", e.Lost, strings.Join(places, ", ")))
		}
		return notes
	}
	if n := c.Dropped; n > 0 {
		notes = append(notes, fmt.Sprintf("%d packets were dropped: they matched the filter, and are in no file", n))
	}
	if n := c.Overwritten; n > 0 {
		notes = append(notes, fmt.Sprintf("%d older packets gave way to newer ones, as asked (rotate)", n))
	}
	return notes
}

// heads of the columns that cells fill.
func (c Counts) heads() []string {
	if c.EventCounts != nil {
		return []string{"EVENTS", "BYTES", "LOST"}
	}
	heads := []string{"PACKETS", "BYTES", "DROPPED", "TRUNCATED"}
	if c.Truncated == 0 {
		// A column of zeros is not worth its room: lines with ordinary names of Pods then fit a terminal.
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
