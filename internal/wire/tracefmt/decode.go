package tracefmt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// maxNames bounds how many different texts a decoder interns: calls, groups, containers.
	maxNames = 1 << 10
	// maxName is the longest text that is interned, and the longest name of a call or an argument, in bytes.
	maxName = 64
)

var (
	errNotEvent = errors.New("the line is not an event: it has no time and call")
	errNotName  = fmt.Errorf("not a name of letters, digits and underscores with at most %d characters", maxName)
)

// decoder parses lines by hand: encoding/json takes five times as long (BenchmarkReader) and loses the order of
// arguments.
type decoder struct {
	names map[string]string
}

// decode reads a line into r, whose Took is negative. Values that the format writes alike are read alike: a number is
// Signed where it fits, and a text that looks like a Hex is one. Encoding r again gives the same line. For a line that
// is not an event, decode returns the value of its key "sonde".
func (d *decoder) decode(line []byte, r *Record) (kind string, err error) {
	if !json.Valid(line) || line[0] != '{' {
		return "", errNotJSON
	}
	line = bytes.Clone(line) // the record's texts point into it
	err = members(line, func(key, value []byte) error {
		if string(key) == "sonde" {
			text, err := text(value)
			kind = string(text)
			return err
		}
		if err := d.member(r, key, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil && kind == "" && (r.Time.IsZero() || r.Call == "") {
		err = errNotEvent
	}
	return kind, err
}

func (d *decoder) member(r *Record, key, value []byte) (err error) {
	switch string(key) {
	case "pod":
		r.Pod, err = d.text(value)
	case "podUid":
		r.PodUID, err = d.text(value)
	case "time":
		r.Time, err = timestamp(value)
	case "call":
		r.Call, err = d.name(value)
	case "group":
		r.Group, err = d.name(value)
	case "container":
		r.Container, err = d.text(value)
	case "comm":
		r.Comm, err = text(value)
	case "args":
		r.Args, err = d.args(value)
	case "errno":
		r.Errno, err = d.name(value)
	case "path":
		r.Path, err = text(value)
	default:
		err = count(r, key, value)
	}
	return err
}

// count reads the members that are numbers.
func count(r *Record, key, value []byte) (err error) {
	switch string(key) {
	case "pid":
		r.PID, err = number32(value)
	case "hostPid":
		r.HostPID, err = number32(value)
	case "tid":
		r.TID, err = number32(value)
	case "hostTid":
		r.HostTID, err = number32(value)
	case "uid":
		r.UID, err = number32(value)
	case "ret":
		r.HasRet = true
		r.Ret, err = strconv.ParseInt(string(value), 10, 64)
	case "latencyNs":
		var ns uint64
		ns, err = strconv.ParseUint(string(value), 10, 63)
		r.Took = time.Duration(ns)
	}
	return err
}

func (d *decoder) args(value []byte) ([]Arg, error) {
	if value[0] != '{' {
		return nil, errors.New("not an object")
	}
	args := make([]Arg, 0, 6)
	err := members(value, func(key, value []byte) error {
		if !plain(key) {
			return errNotName
		}
		a := Arg{Name: d.intern(key)}
		switch c := value[0]; {
		case c == '"':
			t, err := text(value)
			if err != nil {
				return err
			}
			a.Kind, a.Text = Text, t
			if n, ok := hex(t); ok {
				a = Arg{Name: a.Name, Kind: Hex, Number: n}
			}
		case c == '[':
			t, err := list(value)
			if err != nil {
				return err
			}
			a.Kind, a.Text = List, t
		case c == '-' || c >= '0' && c <= '9':
			var ok bool
			if a.Kind, a.Number, ok = number(value); !ok {
				return nil // a fraction, written by a newer tracer
			}
		case c == 't', c == 'f':
			a.Kind, a.Number = Bool, boolNumber(c)
		default:
			return nil
		}
		args = append(args, a)
		return nil
	})
	if len(args) == 0 {
		args = nil
	}
	return args, err
}

// boolNumber returns 1 for 't' (true), and 0 for 'f' (false).
func boolNumber(c byte) int64 {
	if c == 't' {
		return 1
	}
	return 0
}

// number reads an integer of 64 bits, with or without a sign.
func number(value []byte) (ArgKind, int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err == nil {
		return Signed, n, true
	}
	u, err := strconv.ParseUint(string(value), 10, 64)
	return Unsigned, int64(u), err == nil
}

// hex reads a number as appendArg writes a Hex, and accepts no other spelling.
func hex(t []byte) (int64, bool) {
	if len(t) < 3 || t[0] != '0' || t[1] != 'x' || t[2] == '0' && len(t) > 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(t[2:]), 16, 64)
	return int64(n), err == nil && bytes.Equal(strconv.AppendUint(nil, n, 16), t[2:])
}

// name reads the name of a call, a group, an error or an argument. Only plain names are accepted, so they can be shown
// without quoting.
func (d *decoder) name(value []byte) (string, error) {
	t, err := text(value)
	if err == nil && !plain(t) {
		err = errNotName
	}
	return d.intern(t), err
}

// text reads and interns a text that many lines share.
func (d *decoder) text(value []byte) (string, error) {
	t, err := text(value)
	return d.intern(t), err
}

func plain(t []byte) bool {
	for _, c := range t {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return len(t) <= maxName
}

// intern returns one shared copy of a text that many lines share.
func (d *decoder) intern(t []byte) string {
	if s, ok := d.names[string(t)]; ok {
		return s
	}
	s := string(t)
	if len(d.names) < maxNames && len(s) <= maxName {
		d.names[s] = s
	}
	return s
}

func timestamp(value []byte) (time.Time, error) {
	t, err := text(value)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339Nano, string(t))
	at = at.UTC()
	if err == nil && (at.Year() < 0 || at.Year() > 9999) { // the year was valid in another zone
		err = errors.New("not a time in the years 0 to 9999")
	}
	return at, err
}

func number32(value []byte) (uint32, error) {
	n, err := strconv.ParseUint(string(value), 10, 32)
	return uint32(n), err
}

// text returns the content of a JSON string; nil for an empty one.
func text(value []byte) ([]byte, error) {
	if value[0] != '"' {
		return nil, errors.New("not a string")
	}
	inside := value[1 : len(value)-1]
	if len(inside) == 0 {
		return nil, nil
	}
	if bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return slices.Clip(inside), nil
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, fmt.Errorf("read a string: %w", err)
	}
	return []byte(s), nil
}

// list returns an array of strings in the encoding of Arg. A zero byte would end a string, so it becomes U+FFFD.
func list(value []byte) ([]byte, error) {
	var all []string
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("read a list of strings: %w", err)
	}
	var b []byte
	for _, s := range all {
		b = append(append(b, bytes.ReplaceAll([]byte(s), []byte{0}, []byte("\uFFFD"))...), 0)
	}
	return b, nil
}
