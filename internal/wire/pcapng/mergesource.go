package pcapng

import (
	"io"
	"slices"
)

// sequence is files that follow each other in time, like a ring of files.
type sequence []io.Reader

// Sequence makes one source of Merge from files that one writer wrote one after the other. An interface with the same
// description in several files is one interface of the result, and its statistics are added up.
func Sequence(files ...io.Reader) io.Reader { return sequence(files) }

// Read implements io.Reader: it reads all files as one stream.
func (s sequence) Read(b []byte) (int, error) { return io.MultiReader(s...).Read(b) }

// mergeSource is one stream and its buffered packets.
type mergeSource struct {
	index   int
	r       *Reader
	rest    []io.Reader // files after this one
	queue   Queue
	numbers []uint32     // from the current section's interfaces to the result's
	ifaces  []*Interface // the current section's
	newest  uint64
	ended   bool
	// comments of the first section. note holds comments of a later section that differ, for the next interface.
	comments, note []string

	// The previous sections: their interfaces by position, and their statistics by the result's numbers.
	pastNumbers []uint32
	pastIfaces  []*Interface
	before      map[uint32]*Statistics
}

func newMergeSource(index int, r io.Reader) *mergeSource {
	s := &mergeSource{index: index, before: map[uint32]*Statistics{}}
	if files, ok := r.(sequence); ok {
		s.rest = files
		if !s.next() {
			s.r = NewReader(eof{})
		}
		return s
	}
	s.r = NewReader(r)
	return s
}

// eof is an empty stream.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// next opens the next file; false if there is none.
func (s *mergeSource) next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.r, s.rest = NewReader(s.rest[0]), s.rest[1:]
	return true
}

// known finds an interface that a previous section described identically at the same position.
func (s *mergeSource) known(i *Interface) (uint32, bool) {
	at := len(s.numbers)
	if at >= len(s.pastIfaces) {
		return 0, false
	}
	p := s.pastIfaces[at]
	same := p.Name == i.Name && p.Description == i.Description && p.Filter == i.Filter && p.LinkType == i.LinkType && p.SnapLen == i.SnapLen
	return s.pastNumbers[at], same && slices.Equal(p.Comments, i.Comments)
}

// section begins a new section of the source.
func (m *merger) section(s *mergeSource, b *Section) {
	if len(s.ifaces) > 0 {
		s.pastNumbers, s.pastIfaces = s.numbers, s.ifaces
	}
	for _, n := range s.numbers {
		s.before[n] = m.stats[n]
	}
	s.numbers, s.ifaces, s.note = nil, nil, nil
	if !slices.Equal(s.comments, b.Comments) {
		s.note = b.Comments
	}
}

// Plus adds the statistics of a later section. Either may be nil, and neither changes.
func (s *Statistics) Plus(o *Statistics) *Statistics {
	if s == nil {
		return o
	}
	sum := *o
	if s.Start != 0 && (sum.Start == 0 || s.Start < sum.Start) {
		sum.Start = s.Start
	}
	sum.Time, sum.End = max(s.Time, o.Time), max(s.End, o.End)
	sum.Received, sum.IfDrop = add(s.Received, o.Received), add(s.IfDrop, o.IfDrop)
	sum.FilterAccept, sum.OSDrop = add(s.FilterAccept, o.FilterAccept), add(s.OSDrop, o.OSDrop)
	sum.Delivered = add(s.Delivered, o.Delivered)
	return &sum
}

// add adds counters; nil is an unknown one.
func add(a, b *uint64) *uint64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return new(*a + *b)
}
