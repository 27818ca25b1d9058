package trace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// made is a record as the program writes it.
func made(call uint16, numbers []uint64, texts ...string) []byte {
	r := traceRecord{Call: call, Kind: uint8(traceKindKIND_CALL), Numbers: uint8(len(numbers))}
	var rest []byte
	for _, n := range numbers {
		rest = append(rest, unsafe.Slice((*byte)(unsafe.Pointer(&n)), 8)...)
	}
	for i, s := range texts {
		b := append([]byte(s), 0)
		if i == 0 {
			r.First = uint16(len(b))
		} else {
			r.Second = uint16(len(b))
		}
		rest = append(rest, b...)
		rest = append(rest, make([]byte, (8-len(b)%8)%8)...)
	}
	r.Size = uint32(recordLen + len(rest))
	return append(bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordLen)), rest...)
}

func TestParse(t *testing.T) {
	var e event
	if !e.parse(made(257, []uint64{1, 2, 3}, "/etc/passwd", "x")) {
		t.Fatal("not whole")
	}
	if e.record.Call != 257 || e.numbers != [6]uint64{1, 2, 3} || string(e.first) != "/etc/passwd" || string(e.second) != "x" {
		t.Errorf("%+v, %v, %q, %q", e.record, e.numbers, e.first, e.second)
	}
	whole := made(257, []uint64{1}, "/etc/passwd")
	for n := range whole {
		if e.parse(whole[:n]) {
			t.Errorf("%d of %d bytes are a record", n, len(whole))
		}
	}
}

// A page fault's record has its duration once that has ended.
func TestDurationOfAFault(t *testing.T) {
	for name, tc := range map[string]struct {
		took  uint64
		want  time.Duration
		major any
	}{
		"not measured": {0, -1, nil},
		"not ended":    {faultPending | 1234, -1, nil},
		"minor":        {500, 500, int64(0)},
		"major":        {faultMajor | 5_000_000, 5 * time.Millisecond, int64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := made(0, []uint64{0x7f00, 0x400, 6})
			var e event
			if !e.parse(b) {
				t.Fatal("not whole")
			}
			e.record.Kind, e.record.Took = uint8(traceKindKIND_FAULT), tc.took
			var out tracefmt.Record
			describeFault(&e, &out)
			var major any
			if a := out.Args[len(out.Args)-1]; a.Name == "major" {
				major = a.Number
			}
			if out.Took != tc.want || major != tc.major || e.pending() != (tc.took&faultPending != 0) {
				t.Errorf("took %v, major %v, pending %v; want %v, %v", out.Took, major, e.pending(), tc.want, tc.major)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(made(257, []uint64{1, 2, 3, 4, 5, 6}, "/etc/passwd", "b"))
	f.Add(made(1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Records lie at multiples of 8 in the ring.
		aligned := make([]uint64, len(b)/8+1)
		mem := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(aligned)*8)[:len(b)]
		copy(mem, b)
		var e event
		if e.parse(mem) && len(e.first)+len(e.second) > len(mem) {
			t.Errorf("%d bytes of text in %d", len(e.first)+len(e.second), len(mem))
		}
	})
}

func TestContainerName(t *testing.T) {
	const kubelet = "/var/lib/kubelet/pods/0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f"
	for name, tc := range map[string]struct{ line, want string }{
		"the termination log":       {"812 790 8:1 " + kubelet + "/containers/web/5f3a9c11 /dev/termination-log rw,relatime - ext4 /dev/sda1 rw", "web"},
		"a volume":                  {"812 790 8:1 " + kubelet + "/volumes/kubernetes.io~empty-dir/v /data rw - ext4 /dev/sda1 rw", ""},
		"the hosts file":            {"812 790 8:1 " + kubelet + "/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw", ""},
		"something of the target's": {"812 790 8:1 / /pods/x/containers/fake/y rw - ext4 /dev/sda1 rw", ""},
		"short":                     {"812 790", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := containerName(tc.line); got != tc.want || ok != (tc.want != "") {
				t.Errorf("%q, %v, want %q", got, ok, tc.want)
			}
		})
	}
}

// A container's first process is in its cgroup before anything tells whose it is: at its start its name is there.
func TestContainerOfAStart(t *testing.T) {
	const line = "812 790 8:1 /var/lib/kubelet/pods/0f7c5a4e/containers/web/5f3a9c11 /dev/termination-log rw - ext4 /dev/sda1 rw\n"
	proc := t.TempDir()
	mounts := filepath.Join(proc, "7", "mountinfo")
	if err := os.MkdirAll(filepath.Dir(mounts), 0o755); err != nil {
		t.Fatal(err)
	}
	tr := Trace{calls: callsOf([]Group{GroupSignal}), resolver: newResolver(proc)}
	for _, step := range []struct {
		mounted, want string
		kind          traceKind
	}{
		{"", "", traceKindKIND_EXIT},
		{"790 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "", traceKindKIND_EXEC},
		{line, "web", traceKindKIND_EXEC},
	} {
		if err := os.WriteFile(mounts, []byte(step.mounted), 0o600); err != nil {
			t.Fatal(err)
		}
		e := event{record: &traceRecord{Kind: uint8(step.kind), Pid: 7, Tid: 8, Cgroup: 5}}
		if got := tr.describe(&e).Container; got != step.want {
			t.Errorf("with mounts %q the container is %q, want %q", step.mounted, got, step.want)
		}
	}
}

func TestLocate(t *testing.T) {
	p := &processState{cwd: "/srv"}
	p.opened(3, "/var/lib", false)
	p.opened(4, "socket:[77]", false)
	for name, tc := range map[string]struct {
		dir  int32
		path string
		want string
	}{
		"absolute":             {-100, "/etc//passwd", "/etc/passwd"},
		"from the directory":   {-100, "a/../b", "/srv/b"},
		"from an open one":     {3, "dpkg/status", "/var/lib/dpkg/status"},
		"the open file itself": {3, "", "/var/lib"},
		"from what is none":    {4, "x", ""},
		"from what is unknown": {9, "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.locate(tc.dir, tc.path); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestReadSeen(t *testing.T) {
	one := traceSeen{Pid: 7, Depth: 2, Cgroup: 11}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	got, err := readSeen(bytes.NewReader(b))
	if diff := cmp.Diff(map[uint32]traceSeen{7: one}, got, cmpopts.IgnoreFields(traceSeen{}, "_")); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := readSeen(bytes.NewReader(b[:5])); err == nil {
		t.Error("half an answer is one")
	}
}

func TestErrnoName(t *testing.T) {
	for n, want := range map[int64]string{2: "ENOENT", 512: "ERESTARTSYS", 4000: "4000"} {
		if got := errnoName(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// A ring whose next record cannot be read: how much lies behind it is not known, so that nothing is passed over.
func TestDamagedRing(t *testing.T) {
	whole := made(257, []uint64{1})
	r := cpuRing{ring.InMemory(4096, 4096, 0)}
	var e event
	if ok, err := r.next(&e); ok || err != nil {
		t.Errorf("an empty ring: %v, %v", ok, err)
	}
	r.Put(whole, 0)
	r.Put(make([]byte, len(whole)), 0)
	if ok, err := r.next(&e); !ok || err != nil {
		t.Fatalf("a whole record: %v, %v", ok, err)
	}
	r.Skip(uint64(e.record.Size))
	for range 2 {
		if ok, err := r.next(&e); ok || !errors.Is(err, errNotWhole) || r.Left() != uint64(len(whole)) {
			t.Errorf("zeros instead of a record: %v, %v, %d bytes left", ok, err, r.Left())
		}
	}
}
