package traceview

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// quoted returns a text that can be shown safely: in quotes if it has blanks, quotes or unprintable characters.
func quoted[T string | []byte](t T) string {
	s := string(t)
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' || r == '\'' }
	if s != "" && utf8.ValidString(s) && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// commandLine returns the arguments of a process as a user would type them.
func commandLine(list []byte) string {
	var words []string
	for _, w := range split(list) {
		words = append(words, quoted(w))
	}
	return strings.Join(words, " ")
}

// split returns the texts of a tracefmt.List.
func split(list []byte) []string {
	if len(list) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
}

// commandText describes an exec: the file's path, the name that the process was given if it differs, and the arguments.
func commandText(file []byte, argv []byte) string {
	words := split(argv)
	s := quoted(file)
	if len(words) == 0 {
		return s
	}
	if path.Base(words[0]) != path.Base(string(file)) {
		s += " (as " + quoted(words[0]) + ")"
	}
	for _, w := range words[1:] {
		s += " " + quoted(w)
	}
	return s
}

// formatDuration returns a duration with three digits; nothing if it was not measured.
func formatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return ""
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d)
	case d < time.Millisecond-500*time.Nanosecond:
		return digits(float64(d)/1e3) + "µs"
	case d < time.Second-500*time.Microsecond:
		return digits(float64(d)/1e6) + "ms"
	}
	return digits(d.Seconds()) + "s"
}

func digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// clockTime returns the time of an event without its date.
func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

// Failed reports whether a call ended with an error.
func Failed(r *tracefmt.Record) bool { return r.Errno != "" || r.HasRet && r.Ret == -1 }

// result returns the result or error of a call, or the signal or exit code of a process.
func result(r *tracefmt.Record) string {
	switch {
	case r.Call == callExit:
		return exitOf(r)
	case r.Errno != "":
		return r.Errno
	case !r.HasRet:
		return ""
	case r.Ret > 1<<32 || r.Ret < -4095: // an address
		return "0x" + strconv.FormatUint(uint64(r.Ret), 16)
	}
	return strconv.FormatInt(r.Ret, 10)
}

// exitOf returns the signal that ended a process, or else its exit code.
func exitOf(r *tracefmt.Record) string {
	if a := argument(r, argSignal); a != nil {
		return table.Printable(string(a.Text))
	}
	return strconv.FormatInt(r.Ret, 10)
}

func argument(r *tracefmt.Record, name string) *tracefmt.Arg {
	for i := range r.Args {
		if r.Args[i].Name == name {
			return &r.Args[i]
		}
	}
	return nil
}

// processName returns the container and the PID in it.
func processName(r *tracefmt.Record) string {
	pid := strconv.FormatUint(uint64(r.PID), 10)
	if r.Container == "" {
		return pid
	}
	return quoted(r.Container) + "/" + pid
}
