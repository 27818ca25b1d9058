package follow

import (
	"crypto/sha256"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// sections knows the interfaces of a Pod's stream. Each file of a ring has a section, which describes the interfaces of those before it
// again, with the same numbers.
type sections struct {
	// numbers of the interfaces in the merged stream, and the hash of the block that described each.
	numbers []uint32
	hashes  [][sha256.Size]byte
	// at is how many of them the current section has described.
	at int
	// before are the statistics of the sections before, by the number in the merged stream.
	before map[uint32]*pcapng.Statistics
}

// begin notes that a section begins. all are the statistics of the merged stream.
func (s *sections) begin(all []*pcapng.Statistics) {
	s.at = 0
	for _, n := range s.numbers {
		if all[n] == nil {
			continue
		}
		if s.before == nil {
			s.before = map[uint32]*pcapng.Statistics{}
		}
		s.before[n] = all[n]
	}
}

// again reports whether an earlier section described the interface of a block at the same place. If not, the caller adds its number.
func (s *sections) again(block []byte) bool {
	hash, at := sha256.Sum256(block), s.at
	s.at++
	if at < len(s.numbers) && s.hashes[at] == hash {
		return true
	}
	s.numbers, s.hashes = s.numbers[:at], append(s.hashes[:at], hash)
	return false
}

// sum returns the statistics of an interface over all sections. A file has them at its end.
func (s *sections) sum(of *pcapng.Statistics) *pcapng.Statistics {
	return s.before[of.Interface].Plus(of)
}

// refuse ends the stream of a ring at once if the cluster cannot send it: the ring may be captured for days.
func (s *Stream) refuse(err error) {
	s.mu.Lock()
	first := s.err == nil
	s.mu.Unlock()
	s.fail(err)
	s.cancel()
	if first && s.o.OnWriteError != nil {
		s.o.OnWriteError()
	}
}
