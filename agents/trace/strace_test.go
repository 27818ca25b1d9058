package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// raw formats a line as strace writes a call with raw arguments.
func raw(l *line) string {
	if l.Call == decode.EventExec {
		return "execve(*) = 0x0"
	}
	c := byName(l.Call)
	var args []string
	for _, a := range c.Args {
		if a.Kind >= decode.ArgPath {
			args = append(args, "*")
			continue
		}
		args = append(args, hexOf(l.Args[a.Name], a.Kind))
	}
	if l.Errno != "" {
		return fmt.Sprintf("%s(%s) = -1 %s", l.Call, strings.Join(args, ", "), l.Errno)
	}
	return fmt.Sprintf("%s(%s) = %#x", l.Call, strings.Join(args, ", "), *l.Ret)
}

func byName(name string) *decode.Call {
	for _, c := range decode.All() {
		if c.Name == name {
			return &c
		}
	}
	return nil
}

func hexOf(v any, kind decode.ArgKind) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		if kind == decode.ArgUint {
			n, _ := strconv.ParseUint(v.String(), 10, 64)
			return fmt.Sprintf("%#x", n)
		}
		n, _ := strconv.ParseInt(v.String(), 10, 64)
		if kind == decode.ArgOffset {
			return fmt.Sprintf("%#x", uint64(n))
		}
		return fmt.Sprintf("%#x", uint32(n))
	}
	return fmt.Sprint(v)
}

// stracedThread has the calls of a thread as strace records them, without paths.
type stracedThread struct {
	calls []string
	// cut is the call in which the process ended. strace does not know its result, but the trace may.
	cut string
}

// readStrace reads the files of strace -ff -e raw=all.
func readStrace(t *testing.T, dir string) map[int]*stracedThread {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "strace.*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, "strace wrote nothing")
	}
	all := map[int]*stracedThread{}
	for _, file := range files {
		tid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(file), "."))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		all[tid] = readStraced(f)
		_ = f.Close()
	}
	return all
}

func readStraced(r io.Reader) *stracedThread {
	var thread stracedThread
	for s := bufio.NewScanner(r); s.Scan(); {
		if name, cut := parseCut(s.Text()); cut {
			thread.cut = name
		} else if text, ok := parseCall(s.Text()); ok {
			thread.calls = append(thread.calls, text)
		}
	}
	return &thread
}

// unrecognized is strace's text for a call whose beginning it missed.
const unrecognized = "???"

// parseCut returns the call that the end of the process cut short. Its line has no result, an invalid result, or says
// that strace has detached.
func parseCut(text string) (name string, cut bool) {
	name, rest, _ := strings.Cut(text, "(")
	if name != unrecognized && byName(name) == nil {
		return "", false
	}
	return name, strings.HasSuffix(rest, "= ?") || strings.HasSuffix(rest, "<detached ...>") || strings.Contains(rest, "(errno 18446744")
}

// lacksCutCall reports whether the trace has one more call than strace: the one that was cut short.
func (s *stracedThread) lacksCutCall(traced []string) bool {
	n := len(s.calls)
	return s.cut != "" && len(traced) == n+1 && (s.cut == unrecognized || strings.HasPrefix(traced[n], s.cut+"("))
}

func parseCall(text string) (string, bool) {
	name, rest, ok := strings.Cut(text, "(")
	c := byName(name)
	inner, result, cut := strings.Cut(rest, ")")
	if !ok || !cut || c == nil {
		return "", false
	}
	args := strings.Split(inner, ", ")
	if inner == "" {
		args = nil
	}
	args = args[:min(len(args), len(c.Args))]
	for i, a := range c.Args {
		switch {
		case i >= len(args):
		case a.Kind >= decode.ArgPath:
			args[i] = "*"
		case a.Kind == decode.ArgInt || a.Kind == decode.ArgFD || a.Kind == decode.ArgDir:
			n, _ := strconv.ParseUint(args[i], 0, 64)
			args[i] = fmt.Sprintf("%#x", uint32(n))
		case args[i] == "0":
			args[i] = "0x0"
		}
	}
	result = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(result), "="))
	// For a call that a signal has interrupted strace writes "?" and the kernel's restart code.
	result = strings.Replace(result, "? ERESTART", "-1 ERESTART", 1)
	if errno, failed := strings.CutPrefix(result, "-1 "); failed {
		errno, _, _ = strings.Cut(errno, " ")
		return fmt.Sprintf("%s(%s) = -1 %s", name, strings.Join(args, ", "), errno), true
	}
	if result == "0" {
		result = "0x0"
	}
	return fmt.Sprintf("%s(%s) = %s", name, strings.Join(args, ", "), result), true
}

// Lines that strace writes when a process ends, as observed with programs whose threads make threads.
func TestCutShort(t *testing.T) {
	for last, want := range map[string]string{
		"clone3(0x7f7940756ce0, 0x58)            = ?":                                   "clone3",
		"clone3(0x7fb247bbfce0, 0x58 <detached ...>":                                    "clone3",
		"clone3(0x7fc3ca243ce0, 0x58)            = -1 (errno 18446744073709551282)":     "clone3",
		"???()                                   = ?":                                   unrecognized,
		"exit_group(0x7)                         = ?":                                   "",
		"rt_sigprocmask(0x2, 0x7f715bffedd8, 0, 0x8) = -1 (errno 18446744073709551602)": "",
	} {
		s := readStraced(strings.NewReader("madvise(0x7f7163e95000, 0x7fb000, 0x4)  = 0\n" + last + "\n"))
		if s.cut != want || len(s.calls) != 1 {
			t.Errorf("%s: %+v", last, s)
		}
	}
	s := stracedThread{calls: []string{"madvise(0x1) = 0x0"}, cut: "clone3"}
	for _, next := range []string{"clone3(0x1, 0x58) = 0x62f8", "close(0x1) = 0x0"} {
		if s.lacksCutCall(append(s.calls, next)) != strings.HasPrefix(next, s.cut) {
			t.Errorf("%s is taken for the cut call %s", next, s.cut)
		}
	}
}
