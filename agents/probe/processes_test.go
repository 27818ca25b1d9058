package probe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/privileged"
)

// A process that is not the Pod's is no reason to end the capture, but the account says why no packet names its process.
func TestProcessesOfTheConfiguration(t *testing.T) {
	for name, processes := range map[string]bool{"wanted": true, "not wanted": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.Duration = time.Millisecond
			text, err := captureconfig.Config{
				UID: "uid-1", SnapLength: 1, MaxBytes: 1, RingBytes: 1, Engine: captureconfig.EngineAuto, Processes: processes,
			}.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			write(t, b.options.ConfigFile, text)
			a := account3()
			a.Processes = &record.Processes{Named: 3, Reasons: map[pcapng.ProcessReason]uint64{
				pcapng.ProcessNoReceiver: 1, pcapng.ProcessNotIP: 1, pcapng.ProcessForked: 5,
			}}
			b.engine.live, b.engine.run = a, ends(capture.Result{Reason: recording.Duration, Account: a})
			_, got := b.run(t)
			want := &account.Processes{Named: 3, None: 2, Unknown: map[string]int64{"forked": 5}}
			if diff := cmp.Diff(want, got.Processes); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if p := b.engine.config.Processes; (p != nil) != processes || processes && p.Unavailable == "" {
				t.Errorf("the engine was given %+v", p)
			}
		})
	}
}

func TestContainerOfNoContainer(t *testing.T) {
	if name := (&containerNames{}).of(os.Getpid()); name != "" {
		t.Errorf("this test runs in container %q", name)
	}
	if name := (&containerNames{}).of(-1); name != "" {
		t.Errorf("no process is in container %q", name)
	}
}

// The Pod's cgroup is found from one of its processes.
func TestProcessesOfAPod(t *testing.T) {
	privileged.Need(t)
	root := "/sys/fs/cgroup"
	v1 := false
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root, v1 = root+"/pids", true
	}
	uid := fmt.Sprintf("0f7c5a4e-2b0c-4e0e-9d1b-%012x", os.Getpid())
	base := filepath.Join(root, fmt.Sprintf("sonde-probe-%d", os.Getpid()))
	pod := filepath.Join(base, "kubepods", "pod"+uid)
	container := filepath.Join(pod, strings.Repeat("a", 64))
	if err := os.MkdirAll(container, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for dir := container; dir != root; dir = filepath.Dir(dir) {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.WriteFile(filepath.Join(container, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(pod, &st); err != nil {
		t.Fatal(err)
	}
	got := processesOf(uid, &process.NetNS{Process: process.Process{PID: cmd.Process.Pid}})
	want := &backend.Processes{PID: cmd.Process.Pid, Cgroup: st.Ino, Level: 3, CgroupV1: v1}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(backend.Processes{}, "Container")); diff != "" || got.Container == nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
