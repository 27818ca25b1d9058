package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/output"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Programs copy a file by read and write, and by mmap, as FLAP's toys do. FLAP's readers know each line, and each call
// has an enter line followed by its exit line.
func TestFlapOfWorkloads(t *testing.T) {
	t.Parallel()
	program := compile(t, "copy.c")
	for name, tc := range map[string]struct {
		how  string
		want map[string][]string // by source, the program's calls that must be recorded
	}{
		"reading": {"read", map[string][]string{"io": {"openat", "read", "write", "close"}, "memory": {"mmap", "munmap", "page_fault_user"}}},
		"mapping": {"map", map[string][]string{"io": {"openat", "ftruncate"}, "memory": {"mmap", "msync", "munmap", "page_fault_user"}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			source := filepath.Join(t.TempDir(), "source")
			if err := os.WriteFile(source, bytes.Repeat([]byte("content "), 10_000), 0o600); err != nil {
				t.Fatal(err)
			}
			h := pod.hold(t, "", program, tc.how, source, "copied")
			text := map[string]*strings.Builder{"io": {}, "memory": {}}
			sinks := map[string]output.Sink{}
			for name, to := range text {
				sinks[name] = sinkFunc(func(lines []byte, events int) (int, error) {
					to.Write(lines)
					if n := bytes.Count(lines, newline); n != 2*events {
						t.Errorf("%d lines of %d events", n, events)
					}
					return events, nil
				})
			}
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO, decode.GroupMemory, decode.GroupSignal}, Flap: sinks})
			h.run()
			r.cancel()
			<-r.done
			if r.result.Err != nil || r.result.Account.Lost() > 0 {
				t.Fatalf("%+v", r.result)
			}
			events := uint64(0)
			for name, to := range text {
				calls := readFlap(t, to.String())
				events += uint64(len(calls))
				wantFlap(t, name, calls, h.cmd.Process.Pid, tc.want[name])
			}
			if events != r.result.Account.Written || !strings.Contains(text["io"].String(), "{EN openat}{fname="+source+"}") {
				t.Errorf("%d events in files, %d in the account; the copied file must be opened", events, r.result.Account.Written)
			}
		})
	}
}

// flapCall is an enter line with its exit line.
type flapCall struct{ enter, exit tracefmt.FlapLine }

// readFlap reads a file in FLAP's format.
func readFlap(t *testing.T, text string) []flapCall {
	t.Helper()
	var calls []flapCall
	var before *tracefmt.FlapLine
	for line := range strings.Lines(text) {
		l, err := tracefmt.ParseFlap(strings.TrimSuffix(line, "\n"))
		switch {
		case err != nil:
			t.Fatalf("FLAP's readers do not know %q: %v", line, err)
		case before == nil:
			before = &l
		case !l.Ends(before):
			t.Fatalf("%q is not the end of %+v", line, before)
		default:
			calls = append(calls, flapCall{*before, l})
			before = nil
		}
	}
	if before != nil {
		t.Errorf("%+v has no end", before)
	}
	return calls
}

// wantFlap checks for calls of a process in a file, and for a fault in its mapping.
func wantFlap(t *testing.T, source string, calls []flapCall, pid int, want []string) {
	t.Helper()
	made := map[string]bool{}
	type mapping struct{ first, length uint64 }
	var mapped []mapping
	within := false
	for _, c := range calls {
		if int(c.enter.PID) != pid {
			continue
		}
		made[c.enter.Call] = true
		number := func(l *tracefmt.FlapLine, key string) uint64 {
			n, err := strconv.ParseUint(l.Args[key], 10, 64)
			if err != nil {
				t.Errorf("%s of %+v: %v", key, l, err)
			}
			return n
		}
		switch c.enter.Call {
		case "mmap":
			mapped = append(mapped, mapping{number(&c.exit, "ret"), number(&c.enter, "len")})
		case "page_fault_user":
			at := number(&c.enter, "addr")
			within = within || slices.ContainsFunc(mapped, func(m mapping) bool { return at >= m.first && at < m.first+m.length })
		}
	}
	for _, call := range want {
		if !made[call] {
			t.Errorf("%s: no %s among %v", source, call, made)
		}
	}
	if source == "memory" && !within {
		t.Error("no fault is in a mapping")
	}
}
