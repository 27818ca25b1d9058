package nodereport

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// able is a node on which all checks work, except the broken ones.
func able(broken map[Name]string) *Report {
	r := &Report{
		Version: Version, Node: "n1", Kernel: "6.12.0", Arch: "amd64", CPUs: 4, Memory: 8 << 30, Available: 6 << 30, Cgroup: "v2",
		Settings: []Setting{{"net.core.bpf_jit_enable", "1", ""}},
	}
	for _, n := range []Name{Rights, AFPacket, BTF, TypedTP, RawTP, TaskStorage, SocketStore, RingBuffer, Iterator, Cgroups, Tracer, SignalByFD, TCX, Clsact, FEntry, Kprobe, Uprobe} {
		why, bad := broken[n]
		r.Checks = append(r.Checks, Check{Name: n, Works: !bad, Why: why})
	}
	r.Conclude()
	return r
}

func TestConclude(t *testing.T) {
	for name, tc := range map[string]struct {
		broken map[Name]string
		want   map[string]string // parts that do not work, and why
	}{
		"everything": {want: map[string]string{}},
		"an unneeded check": {
			broken: map[Name]string{FEntry: "not supported", Kprobe: "not supported", Uprobe: "", SocketStore: "", RawTP: ""}, want: map[string]string{},
		},
		"an old kernel": {
			broken: map[Name]string{TaskStorage: "not supported (requires >= v5.11)", TCX: "not supported (requires >= v6.6)"},
			want: map[string]string{
				"traces": "task storage: not supported (requires >= v5.11)", "gates": "task storage: not supported (requires >= v5.11)",
				"packets by tcx": "tcx: not supported (requires >= v6.6)",
			},
		},
		"no types": {
			broken: map[Name]string{BTF: "not found", Tracer: ""},
			want: map[string]string{
				"traces": "BTF: not found; tracer: it does not work", "gates": "BTF: not found; tracer: it does not work",
			},
		},
		"no pidfd":         {broken: map[Name]string{SignalByFD: "not allowed"}, want: map[string]string{"gates": "pidfd: not allowed"}},
		"no packet socket": {broken: map[Name]string{AFPacket: "not allowed"}, want: map[string]string{"packets by AF_PACKET": "AF_PACKET: not allowed"}},
		"no engine": {
			broken: map[Name]string{TCX: "too old", Clsact: "not built in", AFPacket: "not allowed"},
			want: map[string]string{
				"packet captures": "tcx: too old; clsact: not built in; AF_PACKET: not allowed",
				"packets by tcx":  "tcx: too old", "packets by clsact": "clsact: not built in", "packets by AF_PACKET": "AF_PACKET: not allowed",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, c := range able(tc.broken).Conclusions {
				if !c.Works {
					got[c.Part] = c.Because
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var none Report
	none.Conclude()
	for _, c := range none.Conclusions {
		if c.Works || !strings.Contains(c.Because, notTried) {
			t.Errorf("an empty report concludes %+v", c)
		}
	}
}

// Engine auto uses the first engine that works.
func TestConcludeEngine(t *testing.T) {
	for name, tc := range map[string]struct {
		broken map[Name]string
		want   string
	}{
		"all":      {want: "engine auto takes tcx"},
		"no tcx":   {broken: map[Name]string{TCX: ""}, want: "engine auto takes clsact"},
		"no bpf":   {broken: map[Name]string{TCX: "", Clsact: ""}, want: "engine auto takes AF_PACKET"},
		"no right": {broken: map[Name]string{Rights: "lacks NET_RAW"}, want: "capabilities: lacks NET_RAW"},
	} {
		t.Run(name, func(t *testing.T) {
			if c := able(tc.broken).Conclusions[0]; c.Part != "packet captures" || c.Because != tc.want {
				t.Errorf("%+v, want %q", c, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	whole, err := json.Marshal(able(nil))
	if err != nil {
		t.Fatal(err)
	}
	many := strings.Repeat(`{"name":"x"},`, maxItems+1)
	for name, tc := range map[string]struct {
		log     string
		wantErr string
	}{
		"alone":            {log: string(whole)},
		"among other text": {log: "starting\n{\"time\":\"x\"}\n" + string(whole) + "\nbye\n"},
		"behind much text": {log: strings.Repeat("noise\n", maxBytes) + string(whole)},
		"nothing":          {wantErr: "gave no report"},
		"torn":             {log: string(whole[:100]), wantErr: "gave no report"},
		"newer":            {log: `{"v":2}`, wantErr: "of version 2, and this plugin reads 1"},
		"no version":       {log: `{"v":0}`, wantErr: "of version 0"},
		"hostile":          {log: `{"v":1,"checks":[` + many[:len(many)-1] + `]}`, wantErr: "more than an agent's"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tc.log))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if diff := cmp.Diff(able(nil), got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestText(t *testing.T) {
	r := able(map[Name]string{FEntry: "attach: not supported\x1b[31m", TCX: "not supported"})
	text := r.Text()
	for _, want := range []string{
		"n1: Linux 6.12.0, amd64, 4 CPUs, 8.0 GiB of memory (6.0 GiB available), cgroup v2\n\n",
		"SONDE                 WORKS  BECAUSE\n",
		"\npacket captures       yes    engine auto takes clsact\n",
		"\npackets by tcx        no     tcx: not supported\n",
		"\npackets by clsact     yes    engine bpf, where tcx does not work\n",
		"BPF programs at a function's entry (fentry)    no   traces: how long page faults take (attach: not supported [31m)\n",
		"types of the kernel (/sys/kernel/btf/vmlinux)  yes  traces, gates\n",
		"\nSETTING                  VALUE  MEANS\nnet.core.bpf_jit_enable  1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, c := range r.Checks {
		if descriptions[c.Name] == "" {
			t.Errorf("%s has no description", c.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"v":1,"kernel":"6.12","checks":[{"name":"tcx","works":true}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err == nil && (len(r.Conclusions) == 0 || strings.ContainsAny(fmt.Sprint(r.Text()), "\x1b\r")) {
			t.Errorf("%q", r.Text())
		}
	})
}
