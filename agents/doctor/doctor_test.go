package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/test/privileged"
)

// fakeNode returns a node whose /proc has these files.
func fakeNode(t *testing.T, files map[string]string) node {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return node{proc: dir}
}

func TestNode(t *testing.T) {
	const v1 = "8:memory:/\n5:pids:/\n1:name=systemd:/\n"
	for name, tc := range map[string]struct {
		files      map[string]string
		wantCgroup string
		wantTotal  int64
		wantFree   int64
		want       []nodereport.Setting
	}{
		"nothing can be read": {wantCgroup: "unknown"},
		"a node of today": {
			files: map[string]string{
				"1/cgroup": "0::/init.scope\n", "meminfo": "MemTotal:  4096 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n",
				"sys/kernel/unprivileged_bpf_disabled": "2\n", "sys/net/core/bpf_jit_enable": "1\n", "self/status": "Name: x\nSeccomp:\t0\n",
				"1/root/sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
			},
			wantCgroup: "v2", wantTotal: 4 << 20, wantFree: 1 << 20,
			want: []nodereport.Setting{
				{Name: "kernel.unprivileged_bpf_disabled", Value: "2", Meaning: "no matter: the probe has rights"},
				{Name: "net.core.bpf_jit_enable", Value: "1"},
				{Name: "lockdown", Value: "none"},
				{Name: "seccomp", Value: "off", Meaning: "of the probe's container"},
			},
		},
		"a node that was changed": {
			files: map[string]string{
				"1/cgroup": v1 + "0::/\n", "sys/net/core/bpf_jit_enable": "0", "sys/kernel/bpf_stats_enabled": "1",
				"1/root/sys/kernel/security/lockdown": "none integrity [confidentiality]\n",
			},
			wantCgroup: "v1+v2",
			want: []nodereport.Setting{
				{Name: "net.core.bpf_jit_enable", Value: "0", Meaning: "BPF programs are interpreted: traces cost several times as much"},
				{Name: "kernel.bpf_stats_enabled", Value: "1", Meaning: "each run of a BPF program is timed: traces cost more"},
				{Name: "lockdown", Value: "confidentiality", Meaning: "BPF programs may not read the kernel's memory: no traces"},
			},
		},
		"an old one": {files: map[string]string{"1/cgroup": v1}, wantCgroup: "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := fakeNode(t, tc.files)
			if got := n.cgroup(); got != tc.wantCgroup {
				t.Errorf("cgroup %s, want %s", got, tc.wantCgroup)
			}
			if total, free := n.memory(); total != tc.wantTotal || free != tc.wantFree {
				t.Errorf("memory %d of %d, want %d of %d", free, total, tc.wantFree, tc.wantTotal)
			}
			if diff := cmp.Diff(tc.want, n.settings()); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRights(t *testing.T) {
	for name, tc := range map[string]struct{ status, want string }{
		"all":     {"CapEff:\t000001ffffffffff\n", ""},
		"none":    {"CapEff:\t0000000000000000\n", "the probe lacks KILL (to signal"},
		"unknown": {"", "read own capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fakeNode(t, map[string]string{"self/status": tc.status}).rights()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A panic in one check does not stop the others, and is reported in one line.
func TestAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		try  func() error
		want nodereport.Check
	}{
		"works":  {func() error { return nil }, nodereport.Check{Name: "x", Works: true}},
		"fails":  {func() error { return errors.New("load: invalid argument:\n0: R1=ctx()") }, nodereport.Check{Name: "x", Why: "load: invalid argument:"}},
		"long":   {func() error { return errors.New(strings.Repeat("é", maxReason)) }, nodereport.Check{Name: "x", Why: strings.Repeat("é", maxReason/2-2) + "..."}},
		"panics": {func() error { panic("out of bounds") }, nodereport.Check{Name: "x", Why: "out of bounds"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, (attempt{"x", tc.try}).check()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing stays attached, and a second examination has the same result.
func TestExamineTwice(t *testing.T) {
	privileged.Need(t)
	first, second := Examine("/proc"), Examine("/proc")
	if !slices.ContainsFunc(first.Settings, func(s nodereport.Setting) bool { return s.Name == "landlock" && s.Value != "" }) {
		t.Errorf("settings %+v, want the version of Landlock", first.Settings)
	}
	if diff := cmp.Diff(first.Checks, second.Checks); diff != "" {
		t.Errorf("the second report differs (-first +second):\n%s", diff)
	}
}
