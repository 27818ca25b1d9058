package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// netNSFiles are files in the place of network namespaces. Each name is a namespace.
type netNSFiles struct{ dir string }

// add gives a namespace another name, such as the link of a process.
func (n netNSFiles) add(t *testing.T, ns, name string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(n.dir, ns), os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(file.Close(), os.MkdirAll(filepath.Dir(name), 0o755), os.Link(file.Name(), name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n netNSFiles) inode(t *testing.T, ns string) uint64 {
	t.Helper()
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(n.dir, ns), &st)
	if err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// The Pod's namespace is "pod". The runtime has also made "probe", which is this process's, and "second", the one of the Pod's
// second sandbox. "own" is one that a process of the Pod has made.
func TestScan(t *testing.T) {
	for name, tc := range map[string]struct {
		processes []string // their namespaces
		hidden    []string // those of processes that cannot be read
		unmounted []string // by the runtime
		watched   string   // default "pod"
		want      []int    // indexes of processes
		wantOwn   bool
		reason    GoneReason
	}{
		"in the Pod's namespace":   {processes: []string{"own", "pod", "second"}, unmounted: []string{"pod"}, want: []int{1}},
		"in one of its own":        {processes: []string{"own", "own"}, want: []int{0, 1}, wantOwn: true},
		"in one of its own, alone": {processes: []string{"own"}, unmounted: []string{"pod"}, want: []int{0}, wantOwn: true},
		"in one of its own, another starts": {
			processes: []string{"own", "node"}, want: []int{0}, wantOwn: true,
		},
		"new sandbox":                          {processes: []string{"second"}, unmounted: []string{"pod"}, reason: GoneNewSandbox},
		"new sandbox, old one mounted":         {processes: []string{"second"}, reason: GoneNewSandbox},
		"new sandbox and an own one":           {processes: []string{"own", "second"}, unmounted: []string{"pod"}, reason: GoneNewSandbox},
		"new sandbox and an own one, mounted":  {processes: []string{"own", "second"}, want: []int{0}, wantOwn: true},
		"new sandbox and a hidden own one":     {processes: []string{"second"}, hidden: []string{"own"}, unmounted: []string{"pod"}, reason: GoneNewSandbox},
		"new sandbox, hidden in the old one":   {processes: []string{"second"}, hidden: []string{"pod"}, unmounted: []string{"pod"}, reason: notGone},
		"new sandbox, hidden in another Pod's": {processes: []string{"second"}, hidden: []string{"second"}, reason: GoneNewSandbox},
		"hidden":                               {hidden: []string{"own"}, unmounted: []string{"pod"}, reason: notGone},
		"only starting":                        {processes: []string{"node"}, reason: GoneNewSandbox},
		"none, mounted":                        {reason: notGone},
		"none":                                 {unmounted: []string{"pod"}, reason: GoneNoProcess},
		"the node does not tell": {
			processes: []string{"own"}, unmounted: []string{"probe", "pod"}, reason: GoneNewSandbox,
		},
		"on the node's network": {processes: []string{"own", "second"}, watched: "node", want: []int{0}, wantOwn: true},
	} {
		t.Run(name, func(t *testing.T) {
			const init, first = 1, 40
			procs := []fakeProc{{init, "0::/init.scope", "init", 'S', 1}}
			for i := range tc.processes {
				procs = append(procs, fakeProc{first + i, "0::/kubepods/pod" + uid + "/" + id, "web", 'S', 300 + i})
			}
			for i := range tc.hidden {
				procs = append(procs, fakeProc{first + len(tc.processes) + i, "", "hidden", 'S', 400})
			}
			f := writeProc(t, procs...)
			f.NodeRoot = t.TempDir()
			namespaces := netNSFiles{t.TempDir()}
			namespaces.add(t, "probe", filepath.Join(f.Root, "self", "ns", "net"))
			namespaces.add(t, "node", f.path(init, "ns/net"))
			for i, ns := range slices.Concat(tc.processes, tc.hidden) {
				namespaces.add(t, ns, f.path(first+i, "ns/net"))
			}
			mount := func(ns string) string { return filepath.Join(f.NodeRoot, pinnedNetNS, "cni-"+ns) }
			for _, ns := range []string{"probe", "pod", "second"} {
				namespaces.add(t, ns, mount(ns))
			}
			for i := range tc.hidden {
				unreadable(t, f, first+len(tc.processes)+i)
			}
			w := Watcher{Finder: f, UID: uid, NetNS: namespaces.inode(t, "pod")}
			if tc.watched != "" {
				w.NetNS = namespaces.inode(t, tc.watched)
			}
			w.pin = f.pinOf(w.NetNS)
			for _, ns := range tc.unmounted {
				if err := os.Remove(mount(ns)); err != nil {
					t.Fatal(err)
				}
			}
			want := state{own: tc.wantOwn, reason: tc.reason}
			for _, i := range tc.want {
				want.procs = append(want.procs, Process{first + i, id, uint64(300 + i)})
			}
			got, err := w.scan()
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(state{})); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
