package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// resolved is a program's path without links.
func resolved(t *testing.T, program string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyProgram copies a program under another name.
func copyProgram(t *testing.T, program, name string) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path
}

// A shell starts several programs, and finally becomes cat. Each command selects its part.
func TestCommand(t *testing.T) {
	t.Parallel()
	const script = `cat /etc/hostname; cat </etc/hosts; cd "$1" && ./tool /etc/passwd; "$2" /etc/group; exec cat /etc/fstab`
	pod := newTestPod(t)
	tool := copyProgram(t, "/bin/cat", "tool")
	link := filepath.Join(t.TempDir(), "a-link-to-cat")
	if err := os.Symlink("/bin/cat", link); err != nil {
		t.Fatal(err)
	}
	all := []string{"/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/fstab"}
	for name, tc := range map[string]struct {
		command kernel.Command
		want    []string // the recorded files among all
		execs   []string // the recorded starts, by argv[0]
	}{
		"everything":         {execs: []string{"sh", "cat", "tool", "a-link-to-cat"}, want: all},
		"by name":            {command: kernel.Command{Name: "cat"}, execs: []string{"cat", "a-link-to-cat"}, want: []string{"/etc/hostname", "/etc/group", "/etc/fstab"}},
		"by path":            {command: kernel.Command{Name: resolved(t, "/bin/cat")}, execs: []string{"cat", "a-link-to-cat"}, want: []string{"/etc/hostname", "/etc/group", "/etc/fstab"}},
		"called by path":     {command: kernel.Command{Name: tool}, execs: []string{"tool"}, want: []string{"/etc/passwd"}},
		"by the path called": {command: kernel.Command{Name: link}, execs: []string{"a-link-to-cat"}, want: []string{"/etc/group"}},
		// A shell opens the files of its redirections, and a child is a shell until it executes its program.
		"the shell":             {command: kernel.Command{Name: "sh"}, execs: []string{"sh", "cat", "tool", "a-link-to-cat"}, want: []string{"/etc/hosts"}},
		"the shell by path":     {command: kernel.Command{Name: resolved(t, "/bin/sh")}, execs: []string{"sh", "cat", "tool", "a-link-to-cat"}, want: []string{"/etc/hosts"}},
		"the shell, children":   {command: kernel.Command{Name: "sh", Children: true}, execs: []string{"sh", "cat", "tool", "a-link-to-cat"}, want: all},
		"part of a name":        {command: kernel.Command{Name: "ca"}},
		"part of a path":        {command: kernel.Command{Name: "/cat"}},
		"another directory":     {command: kernel.Command{Name: "/nowhere" + resolved(t, "/bin/cat")}},
		"longer than any":       {command: kernel.Command{Name: strings.Repeat("x", 255)}},
		"the longest that fits": {command: kernel.Command{Name: strings.Repeat("/x", 32)}},
		"a name, children":      {command: kernel.Command{Name: "tool", Children: true}, execs: []string{"tool"}, want: []string{"/etc/passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := pod.hold(t, "", "/bin/sh", "-c", script, "sh", filepath.Dir(tool), link)
			cfg := Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile}}
			if tc.command.Name != "" {
				cfg.Command = &tc.command
			}
			r := start(t, &cfg)
			h.run()
			var opened, execs []string
			for _, l := range r.stop() {
				switch {
				case l.Call == "openat" && slices.Contains(all, l.Path):
					opened = append(opened, l.Path)
				case l.Call == decode.EventExec && !slices.Contains(execs, l.Comm):
					execs = append(execs, l.Comm)
				}
			}
			slices.Sort(opened)
			slices.Sort(execs)
			slices.Sort(tc.execs)
			want := slices.Sorted(slices.Values(tc.want))
			if !slices.Equal(opened, want) || !slices.Equal(execs, tc.execs) {
				t.Errorf("opened %v, want %v; started %v, want %v", opened, want, execs, tc.execs)
			}
			if a := r.result.Account; a.Lost() > 0 {
				t.Errorf("lost: %+v", a)
			}
		})
	}
}

// A process of the command begins to be recorded, opens a file, and changes its working directory and a descriptor at once. The probe
// reads /proc some milliseconds later. No earlier call has a path from there.
func TestCommandThatChangesItsWorkingDirectory(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	shell := copyProgram(t, "/bin/sh", "a-changing-tool")
	h := pod.hold(t, "", shell, "-c", `: <mine; cd /; exec 7</etc/group 8</etc/passwd; : <etc/hostname; /bin/sleep 0.5`)
	if err := os.WriteFile(filepath.Join(h.cmd.Dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}, Command: &kernel.Command{Name: filepath.Base(shell)}})
	h.run()
	paths := map[string]string{}
	for _, l := range r.stop() {
		if l.Call == "openat" {
			paths[l.arg("pathname")] = l.Path
		}
	}
	mine, seen := paths["mine"]
	if !seen || mine != "" && mine != filepath.Join(h.cmd.Dir, "mine") {
		t.Errorf("mine was opened: %t, as %q", seen, mine)
	}
	if got := paths["etc/hostname"]; got != "/etc/hostname" {
		t.Errorf("etc/hostname was opened as %q", got)
	}
}

// Processes of the command that run when the trace begins are recorded with all threads, and with their children on request.
func TestRunningCommand(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	shell := copyProgram(t, "/bin/sh", "a-tool")
	for name, tc := range map[string]struct {
		command kernel.Command
		shell   bool // whether the shell's files are recorded
		child   bool // whether its child's files are recorded
	}{
		"by name":   {command: kernel.Command{Name: "a-tool"}, shell: true},
		"by path":   {command: kernel.Command{Name: shell}, shell: true},
		"children":  {command: kernel.Command{Name: "a-tool", Children: true}, shell: true, child: true},
		"the child": {command: kernel.Command{Name: "sh"}, child: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, fifo := range []string{"up", "go"} {
				if err := unix.Mkfifo(filepath.Join(dir, fifo), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// The shell waits for its child, and the child for a line of input.
			h := pod.hold(t, "", shell, "-c", `cd "$0"; /bin/sh -c "echo up >up; read x <go; : </etc/hostname"; : </etc/group`, dir)
			if _, err := h.in.Write([]byte("go\n")); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "up")); err != nil || string(b) != "up\n" {
				t.Fatalf("%q, %v", b, err)
			}
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}, Command: &tc.command})
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := h.cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, h.out.String())
			}
			lines := r.stop()
			for path, want := range map[string]bool{"/etc/group": tc.shell, "/etc/hostname": tc.child} {
				if got := slices.ContainsFunc(lines, func(l line) bool { return l.Call == "openat" && l.Path == path }); got != want {
					t.Errorf("%s is opened: %t, want %t", path, got, want)
				}
			}
		})
	}
}

// threadsEach is how many threads the workload makes at the start, and again later.
const threadsEach = 3

// threads waits for a byte; then each of its threads, old and new, opens a file.
func threads() {
	open, up := make(chan struct{}), make(chan struct{})
	thread := func() {
		runtime.LockOSThread()
		up <- struct{}{}
		<-open
		fd, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0)
		if err != nil {
			panic(err)
		}
		_ = unix.Close(fd)
		up <- struct{}{}
		select {} // keeps the thread
	}
	await := func(n int) {
		for range n {
			<-up
		}
	}
	for range threadsEach {
		go thread()
	}
	await(threadsEach)
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = unix.Read(0, make([]byte, 1))
	for range threadsEach {
		go thread()
	}
	await(threadsEach)
	close(open)
	await(2 * threadsEach)
	unix.Exit(0)
}

func TestThreadsOfACommand(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	_, release := pod.startWorkload(t, "threads", 0)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}, Command: &kernel.Command{Name: filepath.Base(os.Args[0])}})
	release()
	tids := map[int]bool{}
	for _, l := range r.stop() {
		if l.Call == "openat" && l.Path == "/etc/hostname" {
			tids[l.HostTID] = true
		}
	}
	if len(tids) != 2*threadsEach {
		t.Errorf("%d threads have opened the file, want %d", len(tids), 2*threadsEach)
	}
}

// become waits for a byte; then a thread that is not the first one becomes cat, of a file that each system has.
func become() {
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	go func() {
		runtime.LockOSThread() // the first thread has the main function
		panic(unix.Exec("/bin/cat", []string{"cat", "/dev/null"}, nil))
	}()
	select {}
}

// A process leaves the command when any of its threads starts another program.
func TestThreadThatLeavesACommand(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	pid, release := pod.startWorkload(t, "become", 0)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile}, Command: &kernel.Command{Name: filepath.Base(os.Args[0])}})
	release()
	awaitNoMarks(t, r.trace)
	left := false
	for _, l := range r.stop() {
		switch {
		case l.Call == decode.EventExec && l.HostPID == pid:
			left = true
		case left && l.HostPID == pid:
			t.Errorf("recorded after its process has left the command: %+v", l)
		}
	}
	if !left {
		t.Error("the exec is not recorded")
	}
}

// A command that no process can have is refused before anything is attached.
func TestOpenRefusesACommand(t *testing.T) {
	if _, err := Open(&Config{PodUID: "0f7c5a4e-1b0c-4e0e-9d1b-5a3b6c7d8e9f", Command: &kernel.Command{}}); err == nil || !strings.Contains(err.Error(), "1 to 255") {
		t.Errorf("a trace of a command without a name: %v", err)
	}
}
