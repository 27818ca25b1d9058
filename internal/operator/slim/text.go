package slim

import (
	"encoding/hex"
	"maps"
	"slices"
)

// uid is a UID in half of the room of a text, as the API server makes them: 36 characters for 16 bytes.
type uid struct {
	raw [16]byte
	// other is one that has another form.
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

// String returns the UID as it was.
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

// pairs are keys and values of a map in one text, by key: a map of three takes 400 bytes. Before each key and each
// value are four bytes with its length, as values may hold any character.
type pairs string

const lengthSize = 4

// pairsOf leaves out those of some keys that have a value.
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

// next returns the first text, and what is behind it.
func (p pairs) next() (string, pairs) {
	n := int(p[0])<<24 | int(p[1])<<16 | int(p[2])<<8 | int(p[3])
	p = p[lengthSize:]
	return string(p[:n]), p[n:]
}

// whole returns the map, with those that pairsOf has left out; nil where there is nothing.
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
