package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// raw is a line as strace writes a call with raw arguments.
func raw(l *line) string {
	if l.Call == eventExec {
		return "execve(*) = 0x0"
	}
	c := byName(l.Call)
	var args []string
	for _, a := range c.args {
		if a.kind >= argPath {
			args = append(args, "*")
			continue
		}
		args = append(args, hexOf(l.Args[a.name], a.kind))
	}
	if l.Errno != "" {
		return fmt.Sprintf("%s(%s) = -1 %s", l.Call, strings.Join(args, ", "), l.Errno)
	}
	return fmt.Sprintf("%s(%s) = %#x", l.Call, strings.Join(args, ", "), *l.Ret)
}

func byName(name string) *call {
	for _, list := range tables {
		for i := range list {
			if list[i].name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func hexOf(v any, kind argKind) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		if kind == argUint {
			n, _ := strconv.ParseUint(v.String(), 10, 64)
			return fmt.Sprintf("%#x", n)
		}
		n, _ := strconv.ParseInt(v.String(), 10, 64)
		if kind == argOffset {
			return fmt.Sprintf("%#x", uint64(n))
		}
		return fmt.Sprintf("%#x", uint32(n))
	}
	return fmt.Sprint(v)
}

// readStrace reads the files of strace -ff -e raw=all: for each thread its calls of the groups, with paths left out.
func readStrace(t *testing.T, dir string) map[int][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "strace.*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, "strace wrote nothing")
	}
	all := map[int][]string{}
	for _, file := range files {
		tid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(file), "."))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if text, ok := straceCall(s.Text()); ok {
				all[tid] = append(all[tid], text)
			}
		}
		_ = f.Close()
	}
	return all
}

func straceCall(text string) (string, bool) {
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
	args = args[:min(len(args), len(c.args))]
	for i, a := range c.args {
		switch {
		case i >= len(args):
		case a.kind >= argPath:
			args[i] = "*"
		case a.kind == argInt || a.kind == argFD || a.kind == argDir:
			n, _ := strconv.ParseUint(args[i], 0, 64)
			args[i] = fmt.Sprintf("%#x", uint32(n))
		case args[i] == "0":
			args[i] = "0x0"
		}
	}
	result = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(result), "="))
	if result == "?" {
		return "", false // it never returned
	}
	// What a signal has interrupted has no result for strace, which says with what the kernel makes it begin again.
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
