package tracefmt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// appendCall appends the name of the call and its group.
func appendCall(b []byte, r *Record) []byte {
	b = append(b, `","call":"`...)
	b = append(b, r.Call...)
	b = append(b, `","group":"`...)
	b = append(b, r.Group...)
	return append(b, '"')
}

// appendActor appends the thread that made the call.
func appendActor(b []byte, r *Record) []byte {
	if r.Container != "" {
		// The name comes from the source of a mount, which the author of a Pod chooses.
		b = appendText(append(b, `,"container":`...), []byte(r.Container))
	}
	b = appendUint(append(b, `,"pid":`...), r.PID)
	b = appendUint(append(b, `,"hostPid":`...), r.HostPID)
	b = appendUint(append(b, `,"tid":`...), r.TID)
	b = appendUint(append(b, `,"hostTid":`...), r.HostTID)
	b = appendUint(append(b, `,"uid":`...), r.UID)
	return appendText(append(b, `,"comm":`...), r.Comm)
}

// appendRest appends the arguments, the result and the end of the line.
func appendRest(b []byte, r *Record) []byte {
	if len(r.Args) > 0 {
		b = append(b, `,"args":{`...)
		for i := range r.Args {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendArg(b, &r.Args[i])
		}
		b = append(b, '}')
	}
	if r.HasRet {
		b = strconv.AppendInt(append(b, `,"ret":`...), r.Ret, 10)
	}
	if r.Errno != "" {
		b = append(b, `,"errno":"`...)
		b = append(b, r.Errno...)
		b = append(b, '"')
	}
	if r.Took >= 0 {
		b = strconv.AppendInt(append(b, `,"latencyNs":`...), int64(r.Took), 10)
	}
	if len(r.Path) > 0 {
		b = appendText(append(b, `,"path":`...), r.Path)
	}
	return append(b, '}', '\n')
}

// AppendWithPod appends a line of a trace, as Line.Raw has it, with the name and UID of its Pod. A file with the traces
// of several Pods needs them in every Record and Account; a Header has them already. An empty uid is omitted.
func AppendWithPod(b, line []byte, pod, uid string) []byte {
	b = appendPod(append(b, '{'), pod, uid)
	return append(append(b, line[1:]...), '\n')
}

func appendPod(b []byte, pod, uid string) []byte {
	if pod != "" {
		b = append(appendText(append(b, `"pod":`...), []byte(pod)), ',')
	}
	if uid != "" {
		b = append(appendText(append(b, `"podUid":`...), []byte(uid)), ',')
	}
	return b
}

func appendUint(b []byte, n uint32) []byte { return strconv.AppendUint(b, uint64(n), 10) }

func appendArg(b []byte, a *Arg) []byte {
	b = append(b, '"')
	b = append(b, a.Name...)
	b = append(b, '"', ':')
	switch a.Kind {
	case Signed:
		return strconv.AppendInt(b, a.Number, 10)
	case Unsigned:
		return strconv.AppendUint(b, uint64(a.Number), 10)
	case Hex:
		return append(appendHex(append(b, `"0x`...), uint64(a.Number)), '"')
	case List:
		return appendList(b, a.Text)
	case Bool:
		return strconv.AppendBool(b, a.Number != 0)
	default:
		return appendText(b, a.Text)
	}
}

func appendList(b, list []byte) []byte {
	b = append(b, '[')
	for first := true; len(list) > 0; first = false {
		if !first {
			b = append(b, ',')
		}
		one, rest, _ := bytes.Cut(list, []byte{0})
		b, list = appendText(b, one), rest
	}
	return append(b, ']')
}

// appendHex appends a number in hexadecimal. strconv.AppendUint takes twice as long.
func appendHex(b []byte, n uint64) []byte {
	size := max(1, (bits.Len64(n)+3)/4)
	b = append(b, "0000000000000000"[:size]...)
	for at := len(b) - 1; n > 0; at-- {
		b[at] = hexDigits[n&15]
		n >>= 4
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendSecond appends a time in UTC (RFC 3339) up to the dot after its seconds. time.Time.AppendFormat takes several
// times as long.
func appendSecond(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	start := len(b)
	b = append(b, "0000-00-00T00:00:00."...)
	at := b[start:]
	twoDigits(at[0:], year/100)
	twoDigits(at[2:], year)
	twoDigits(at[5:], int(month))
	twoDigits(at[8:], day)
	twoDigits(at[11:], hour)
	twoDigits(at[14:], minute)
	twoDigits(at[17:], second)
	return b
}

// appendNanos appends the nanoseconds of a second with nine digits, and the Z of UTC.
func appendNanos(b []byte, ns int) []byte {
	start := len(b)
	b = append(b, "000000000Z"...)
	at := b[start:]
	twoDigits(at[0:], ns/10_000_000)
	twoDigits(at[2:], ns/100_000)
	twoDigits(at[4:], ns/1000)
	twoDigits(at[6:], ns/10)
	at[8] = byte('0' + ns%10)
	return b
}

// twoDigits writes the last two digits of a number, which must not be negative.
func twoDigits(b []byte, n int) {
	const pairs = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849" +
		"5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899"
	n = n % 100 * 2
	copy(b[:2], pairs[n:n+2])
}

// plainBytes are the bytes that a JSON string holds unescaped.
var plainBytes = func() (all [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		all[c] = c != '"' && c != '\\'
	}
	return all
}()

// plainPrefix returns how many bytes at the beginning of text need no escaping, rounded down to a multiple of eight.
func plainPrefix(text []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(text); n += 8 {
		w := binary.LittleEndian.Uint64(text[n:])
		quote, slash, del := w^ones*'"', w^ones*'\\', w^ones*0x7f
		// "(x-y)&^x" has the top bit of a byte set where the subtraction borrows. For y of blanks, that is where a byte is
		// below ' '. For y of ones, it is where a byte is zero: there the text has that character.
		odd := w | (w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash | (del-ones)&^del
		if odd&tops != 0 {
			break
		}
	}
	return n
}

// appendText appends a JSON string. Bytes that are not UTF-8 become U+FFFD, as in encoding/json; a path can hold any
// byte. Characters that do not print are escaped: a terminal would obey some of them.
func appendText(b, text []byte) []byte {
	b = append(b, '"')
	start := 0
	for i := plainPrefix(text); i < len(text); {
		c := text[i]
		if plainBytes[c] {
			i++
			continue
		}
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
				b = appendEscaped(append(b, text[start:i]...), r)
				start = i + size
			}
			i += size
			continue
		case c == '"' || c == '\\':
			b = append(append(b, text[start:i]...), '\\', c)
		default:
			b = append(append(b, text[start:i]...), '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, text[start:]...), '"')
}

// appendEscaped appends a character as JSON escapes it, in UTF-16.
func appendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); r > 0xffff {
		return appendEscaped(appendEscaped(b, high), low)
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
