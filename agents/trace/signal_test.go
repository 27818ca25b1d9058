package trace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// Signals to a Pod's processes, with their senders and results.
func TestSignals(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	victim := pod.hold(t, "", "/bin/true")
	deaf := pod.hold(t, "", "/bin/sh", "-c", `trap "" USR2; kill -USR2 $$; /bin/true; true`)
	broken := pod.hold(t, "", "/bin/sh", "-c", workloadEnv+`=segv exec "$0"`, os.Args[0])
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupSignal}})
	deaf.run()
	broken.run()
	if err := victim.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := victim.cmd.Wait(); !errors.As(err, &ended) {
		t.Fatalf("the process that was sent SIGTERM ended with %v", err)
	}
	lines := r.stop()
	me, sh := os.Getpid(), deaf.cmd.Process.Pid
	for name, want := range map[string]map[string]any{
		"from outside the Pod": {
			"hostPid": victim.cmd.Process.Pid, "signal": "SIGTERM", "number": 15, "code": "SI_USER", "result": "delivered", "to": "process",
			"from": "process", "senderHostPid": me,
		},
		"ignored, from itself": {"hostPid": sh, "signal": "SIGUSR2", "code": "SI_USER", "result": "ignored", "senderHostPid": sh, "senderComm": "sh"},
		"child that ended":     {"hostPid": sh, "signal": "SIGCHLD", "code": "CLD_EXITED", "from": "kernel"},
		"fault": {
			"hostPid": broken.cmd.Process.Pid, "signal": "SIGSEGV", "code": "SEGV_MAPERR", "result": "delivered", "to": "thread", "from": "kernel", "address": "0x0",
		},
	} {
		if !slices.ContainsFunc(lines, func(l line) bool { return l.Call == decode.EventSignal && l.has(want) }) {
			t.Errorf("no line for signal %s", name)
		}
	}
	if !slices.ContainsFunc(lines, func(l line) bool {
		return l.Call == "kill" && l.HostPID == sh && *l.Ret == 0 && l.has(map[string]any{"sig": 12, "pid": sh})
	}) {
		t.Error("no line for the call kill")
	}
	for _, l := range lines {
		if l.Group != string(decode.GroupSignal) {
			t.Errorf("not requested: %+v", l)
		}
	}
	if r.result.Account.Lost() > 0 {
		t.Errorf("%+v", r.result.Account)
	}
}

// has reports whether a line has arguments with these values, as texts.
func (l *line) has(want map[string]any) bool {
	for name, v := range want {
		got := l.Args[name]
		if name == "hostPid" {
			got = l.HostPID
		}
		if asText(got) != asText(v) {
			return false
		}
	}
	return true
}

// A process that exceeds its cgroup's memory limit is killed, and the trace has its size.
func TestOOMKill(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/sh", "-c", workloadEnv+`=eat exec "$0"`, os.Args[0])
	limitMemory(t, pod, h.cmd.Process.Pid, limit)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupSignal}})
	if _, err := h.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Wait(); err == nil || h.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, h.out.String())
	}
	lines := r.stop()
	i := slices.IndexFunc(lines, func(l line) bool { return l.Call == decode.EventOOM })
	if i < 0 {
		t.Fatal("no line for the OOM kill")
	}
	l := lines[i]
	anon, total := argOf(t, &l, "anonBytes"), argOf(t, &l, "totalBytes")
	if l.HostPID != h.cmd.Process.Pid || l.Group != string(decode.GroupSignal) || anon < limit/4 || anon > limit || total < anon {
		t.Errorf("%+v", l)
	}
	killed := map[string]any{"hostPid": h.cmd.Process.Pid, "signal": "SIGKILL", "code": "SI_KERNEL", "from": "kernel"}
	if !slices.ContainsFunc(lines, func(l line) bool { return l.Call == decode.EventSignal && l.has(killed) }) {
		t.Error("no line for the kernel's signal")
	}
}

// limitMemory limits a process's memory by the Pod's cgroup or, with cgroup v1, by a cgroup of the memory controller.
func limitMemory(t *testing.T, pod *testPod, pid, limit int) {
	t.Helper()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		var above []string
		for dir := filepath.Dir(pod.dir); len(dir) >= len(root); dir = filepath.Dir(dir) {
			above = append(above, dir)
		}
		for _, dir := range slices.Backward(above) {
			write(filepath.Join(dir, "cgroup.subtree_control"), "+memory")
		}
		write(filepath.Join(pod.dir, "memory.max"), strconv.Itoa(limit))
		return
	}
	dir := filepath.Join(root, "memory", "sonde-trace-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroup(dir); err != nil {
			t.Error(err)
		}
	})
	write(filepath.Join(dir, "memory.limit_in_bytes"), strconv.Itoa(limit))
	write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}
