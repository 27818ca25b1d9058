package carrier

// Classes of the bytes of a head (RFC 9110, section 5.6.2, and RFC 9112, section 3), and of a host name with the underscore that some have.
const (
	tokenByte = 1 << iota
	targetByte
	valueByte
	hexByte
	hostByte
)

var class = classes()

func classes() (c [256]byte) {
	for i := range c {
		if i >= 0x80 || i > ' ' && i < 0x7f {
			c[i] |= targetByte | valueByte
		}
	}
	c[' '] |= valueByte
	c['\t'] |= valueByte
	for _, b := range "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		c[b] |= tokenByte
	}
	for _, b := range "0123456789abcdefABCDEF" {
		c[b] |= hexByte
	}
	for _, b := range "-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		c[b] |= hostByte
	}
	return c
}

// all reports whether all bytes of s are of a class.
func all[T string | []byte](s T, of byte) bool {
	for i := range len(s) {
		if class[s[i]]&of == 0 {
			return false
		}
	}
	return true
}

// trim removes the white space around a value.
func trim[T string | []byte](s T) T {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
