package slim

import (
	"encoding/hex"
	"maps"
	"slices"
)

// uid is a UID in 16 bytes instead of 36 characters.
type uid struct {
	raw [16]byte
	// other is a UID of another form.
	other name
}

func uidOf(s string) uid {
	var u uid
	digits := make([]byte, 0, 2*len(u.raw))
	for i := range len(s) {
		if s[i] != '-' && len(digits) < cap(digits) {
			digits = append(digits, s[i])
		}
	}
	if _, err := hex.Decode(u.raw[:], digits); err == nil && u.raw != [16]byte{} && u.String() == s {
		return u
	}
	return uid{other: nameOf(s)}
}

// String returns the original UID.
func (u uid) String() string {
	if u.raw == [16]byte{} {
		return u.other.String()
	}
	text := make([]byte, 0, 36)
	for i := range u.raw {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, u.raw[i:i+1])
	}
	return string(text)
}

// pairs holds the keys and values of a map in one string, sorted by key. A map with three entries would take 400 bytes. Four
// bytes with the length precede each key and value, because values may contain any character.
type pairs string

const lengthSize = 4

// pairsOf returns the pairs of m, except those in without that have a value.
func pairsOf(m map[string]string, without ...string) pairs {
	var p []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != "" && slices.Contains(without, k) {
			continue
		}
		for _, text := range []string{k, m[k]} {
			n := len(text)
			p = append(append(p, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), text...)
		}
	}
	return pairs(p)
}

// next returns the first string and the rest.
func (p pairs) next() (string, pairs) {
	n := int(p[0])<<24 | int(p[1])<<16 | int(p[2])<<8 | int(p[3])
	p = p[lengthSize:]
	return string(p[:n]), p[n:]
}

// expand returns the map, with more added. It is nil if there are no entries.
func (p pairs) expand(more ...pair) map[string]string {
	m := map[string]string{}
	for len(p) > 0 {
		var k, v string
		k, p = p.next()
		v, p = p.next()
		m[k] = v
	}
	for _, kv := range more {
		if kv.value != "" {
			m[kv.key] = kv.value
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

type pair struct{ key, value string }
