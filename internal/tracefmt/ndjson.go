package tracefmt

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendNDJSON appends a record as one line. Keys of what is empty or not known are left out.
func AppendNDJSON(b []byte, r *Record) []byte {
	b = appendPod(append(b, '{'), r.Pod, r.PodUID)
	b = append(b, `"time":"`...)
	b = appendTime(b, r.Time)
	b = append(b, `","call":"`...)
	b = append(b, r.Call...)
	b = append(b, `","group":"`...)
	b = append(b, r.Group...)
	b = append(b, '"')
	if r.Container != "" {
		// It comes from the source of a mount, which a Pod's author can name.
		b = appendText(append(b, `,"container":`...), []byte(r.Container))
	}
	b = appendUint(append(b, `,"pid":`...), r.PID)
	b = appendUint(append(b, `,"hostPid":`...), r.HostPID)
	b = appendUint(append(b, `,"tid":`...), r.TID)
	b = appendUint(append(b, `,"hostTid":`...), r.HostTID)
	b = appendUint(append(b, `,"uid":`...), r.UID)
	b = appendText(append(b, `,"comm":`...), r.Comm)
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

// AppendOfPod appends a line of a trace, as a Reader has it, to a file of several Pods' traces, in which it says whose it
// is: Record and Account have it as Pod and PodUID. A header says so already.
func AppendOfPod(b, line []byte, pod, uid string) []byte {
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
		b = strconv.AppendUint(append(b, `"0x`...), uint64(a.Number), 16)
		return append(b, '"')
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

// appendTime appends a time in UTC with nine digits (RFC 3339). time.Time's own takes several times as long.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	ns := t.Nanosecond()
	start := len(b)
	b = append(b, "0000-00-00T00:00:00.000000000Z"...)
	at := b[start:]
	two(at[0:], year/100)
	two(at[2:], year)
	two(at[5:], int(month))
	two(at[8:], day)
	two(at[11:], hour)
	two(at[14:], minute)
	two(at[17:], second)
	two(at[20:], ns/10_000_000)
	two(at[22:], ns/100_000)
	two(at[24:], ns/1000)
	two(at[26:], ns/10)
	at[28] = byte('0' + ns%10)
	return b
}

// two writes the last two digits of a number that is not negative.
func two(b []byte, n int) {
	const pairs = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849" +
		"5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899"
	n = n % 100 * 2
	copy(b[:2], pairs[n:n+2])
}

// asItIs are the bytes that stand for themselves in a JSON string.
var asItIs = func() (all [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		all[c] = c != '"' && c != '\\'
	}
	return all
}()

// appendText appends a JSON string. What is no UTF-8 becomes U+FFFD, as encoding/json has it: a path may hold any byte.
func appendText(b, text []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if asItIs[c] {
			i++
			continue
		}
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				b = append(append(b, text[start:i]...), `\u`...)
				b = append(b, hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
				start = i + size
			}
			i += size
			continue
		case c == '"' || c == '\\':
			b = append(append(b, text[start:i]...), '\\', c)
		default:
			b = append(append(b, text[start:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(b, text[start:]...), '"')
}
