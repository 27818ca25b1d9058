package trace

import "hash/maphash"

// keptTexts are strings that may come again, as paths do, and then are not made again: of those that fall into one place
// the last.
type keptTexts [256]string

var keptSeed = maphash.MakeSeed()

// of returns bytes as a string.
func (k *keptTexts) of(b []byte) string {
	kept := &k[maphash.Bytes(keptSeed, b)%uint64(len(k))]
	if *kept != string(b) {
		*kept = string(b)
	}
	return *kept
}
