package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// toy makes each call of the table once or more: with nonsense, which fails, and as it is meant.
func toy(dir string) {
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	for _, c := range slices.Concat(common, legacy) {
		switch c.number {
		case unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_CLOSE_RANGE, unix.SYS_CLOSE:
			continue // nonsense would succeed
		}
		if c.name == "fork" || c.name == "vfork" {
			continue
		}
		const none = ^uintptr(0)
		_, _, _ = unix.Syscall6(uintptr(c.number), none, none, none, none, none, none)
	}
	var each sync.WaitGroup
	for i := range 3 {
		each.Go(func() {
			runtime.LockOSThread()
			files(fmt.Sprintf("thread-%d", i))
		})
	}
	each.Wait()
	files("main")
	_ = exec.Command("/bin/true", "a", "b c").Run()
	_ = exec.Command("/nowhere/to/be found").Run()
}

// files opens, changes, moves and removes.
func files(name string) {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o640)
	if err != nil {
		panic(err)
	}
	b := make([]byte, 100)
	_, _ = unix.Write(fd, b)
	_, _ = unix.Pwrite(fd, b[:10], 50)
	_, _ = unix.Pread(fd, b, 20)
	_, _ = unix.Seek(fd, 0, 0)
	_, _ = unix.Read(fd, b)
	_, _ = unix.Readv(fd, [][]byte{b[:1], b[1:2]})
	_, _ = unix.Writev(fd, [][]byte{b[:1], b[1:2]})
	_, _ = unix.Preadv(fd, [][]byte{b[:1], b[1:2]}, 3)
	_, _ = unix.Pwritev2(fd, [][]byte{b[:1], b[1:2]}, 3, 0)
	_ = unix.Fsync(fd)
	_ = unix.Fdatasync(fd)
	_ = unix.Ftruncate(fd, 77)
	_ = unix.Fchmod(fd, 0o600)
	_ = unix.Fchown(fd, -1, -1)
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st)
	_ = unix.Stat(name, &st)
	_ = unix.Fstatat(unix.AT_FDCWD, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	copied, _ := unix.Dup(fd)
	_ = unix.Dup3(fd, copied, unix.O_CLOEXEC)
	other, _ := unix.Openat2(unix.AT_FDCWD, name+".copy", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o600})
	_, _ = unix.CopyFileRange(fd, nil, other, nil, 10, 0)
	_, _ = unix.Seek(fd, 0, 0)
	_, _ = unix.Sendfile(other, fd, nil, 10)
	_ = unix.Close(other)
	_ = unix.Close(copied)
	_ = unix.Close(fd)
	_ = unix.Mkdir(name+".dir", 0o700)
	dir, _ := unix.Open(name+".dir", unix.O_DIRECTORY|unix.O_RDONLY, 0)
	_ = unix.Renameat(unix.AT_FDCWD, name, dir, "moved")
	_ = unix.Symlinkat("moved", dir, "link")
	_ = unix.Linkat(dir, "moved", dir, "hard", 0)
	_ = unix.Fchmodat(dir, "moved", 0o644, 0)
	_, _ = unix.Readlinkat(dir, "link", b)
	_ = unix.Faccessat(dir, "moved", unix.R_OK, 0)
	_ = unix.Truncate(name+".dir/moved", 5)
	for _, left := range []string{"moved", "link", "hard"} {
		_ = unix.Unlinkat(dir, left, 0)
	}
	_ = unix.Close(dir)
	_ = unix.Rmdir(name + ".dir")
	_ = unix.Unlink(name + ".copy")
	_ = unix.Unlink("was never there")
}

// One run of one program is seen by strace and by the tracer: each thread made the same calls in the same order, with
// the same arguments and results.
func TestTheSameAsStrace(t *testing.T) {
	pod := newTestPod(t, testUID)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is missing: make deps installs it")
	}
	dir := t.TempDir()
	idle := pod.hold(t, "", "/bin/true") // so that the Pod has a process
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupProcess, GroupFile, GroupIO}})
	cmd := exec.CommandContext(t.Context(), strace, "-ff", "-qq", "-e", "raw=all", "-e", "signal=none", "-o", filepath.Join(dir, "strace"),
		"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(pod.dir, "cgroup.procs"), os.Args[0])
	work := t.TempDir()
	cmd.Env = append(os.Environ(), toyEnv+"=calls", toyDir+"="+work)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 7 {
		t.Fatalf("%v: %s", err, out)
	}
	idle.run()
	lines := r.stop()
	if r.result.Account.Lost() > 0 {
		t.Fatalf("lost: %+v", r.result.Account)
	}
	want := readStrace(t, dir)
	got := map[int][]string{}
	for i := range lines {
		l := &lines[i]
		if _, ok := want[l.HostTID]; ok && l.Call != eventFork && l.Call != eventExit {
			got[l.HostTID] = append(got[l.HostTID], raw(l))
		}
	}
	compared := 0
	for tid := range want {
		// The shell's first calls came before it joined the Pod.
		w := want[tid][max(0, len(want[tid])-len(got[tid])):]
		if len(got[tid]) < len(want[tid])-20 {
			t.Errorf("thread %d: %d calls, strace has %d", tid, len(got[tid]), len(want[tid]))
		}
		compared += len(w)
		if diff := cmp.Diff(w, got[tid]); diff != "" {
			t.Errorf("thread %d (-strace +trace):\n%s", tid, diff)
		}
	}
	t.Logf("%d calls of %d threads compared", compared, len(want))
	if compared < 300 {
		t.Errorf("only %d calls were compared", compared)
	}
}

// raw is a line as strace writes a call with raw arguments.
func raw(l *line) string {
	if l.Call == eventExec {
		return "execve(*) = 0x0"
	}
	c := byName(l.Call)
	var args []string
	for _, a := range c.args {
		if a.kind == argPath {
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
	for _, list := range [][]call{common, legacy} {
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
		case a.kind == argPath:
			args[i] = "*"
		case a.kind == argInt || a.kind == argFD || a.kind == argDir:
			n, _ := strconv.ParseUint(args[i], 0, 64)
			args[i] = fmt.Sprintf("%#x", uint32(n))
		case args[i] == "0":
			args[i] = "0x0"
		}
	}
	result = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(result), "="))
	if strings.HasPrefix(result, "?") {
		return "", false // it never returned
	}
	if errno, failed := strings.CutPrefix(result, "-1 "); failed {
		errno, _, _ = strings.Cut(errno, " ")
		return fmt.Sprintf("%s(%s) = -1 %s", name, strings.Join(args, ", "), errno), true
	}
	if result == "0" {
		result = "0x0"
	}
	return fmt.Sprintf("%s(%s) = %s", name, strings.Join(args, ", "), result), true
}
