package decode

import "hash/maphash"

// internedStrings keeps recent strings, one per hash bucket, so that a path that comes again is not allocated again.
type internedStrings [256]string

var internSeed = maphash.MakeSeed()

// get returns b as a string.
func (s *internedStrings) get(b []byte) string {
	kept := &s[maphash.Bytes(internSeed, b)%uint64(len(s))]
	if *kept != string(b) {
		*kept = string(b)
	}
	return *kept
}
