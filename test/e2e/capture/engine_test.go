//go:build e2e

package capture

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// Each engine captures with all rights that a probe can have, and with the fewest. Where BPF programs cannot be used,
// auto falls back and says why, and bpf fails and says which engine to choose.
func TestEngine(t *testing.T) {
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		t.Run(string(setting), func(t *testing.T) {
			cluster.ProbePrivilege(t, setting)
			ns := cluster.Namespace(t, nil)
			sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
			plain, odd := cluster.Pod(t, ns, "plain", cluster.PodSpec("sink")), cluster.Pod(t, ns, "odd", cluster.PodSpec("sink"))
			addPPP(t, odd)
			bpf := cluster.Backend(t, sondev1.EngineBPF)
			for name, tc := range map[string]struct {
				engine sondev1.CaptureEngine
				target *corev1.Pod
				// Backend in the status; empty if the capture fails.
				want string
				// Part of the status message that explains a fallback or a failure.
				wantMessage string
			}{
				"afpacket":                {sondev1.EngineAFPacket, plain, "afpacket", ""},
				"bpf":                     {sondev1.EngineBPF, plain, bpf, ""},
				"auto":                    {sondev1.EngineAuto, plain, bpf, ""},
				"afpacket, odd interface": {sondev1.EngineAFPacket, odd, "afpacket", ""},
				"auto, odd interface":     {sondev1.EngineAuto, odd, "afpacket", "the packets of odd (hardware type 512) have a header"},
				"bpf, odd interface":      {sondev1.EngineBPF, odd, "", "use auto or afpacket: tcx: "},
			} {
				t.Run(name, func(t *testing.T) { wantEngine(t, sender, tc.target, tc.engine, tc.want, tc.wantMessage) })
			}
		})
	}
}

// wantEngine captures numbered packets to a Pod with an engine. It compares the file with the packets sent, and the
// status with the wanted backend and message.
func wantEngine(t *testing.T, sender, target *corev1.Pod, engine sondev1.CaptureEngine, want, wantMessage string) {
	t.Helper()
	pc := &sondev1.PacketCapture{Spec: sondev1.PacketCaptureSpec{
		TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: target.Name}, Duration: "5m", Filter: "udp", Engine: engine,
		FollowPods: new(false),
	}}
	pc.GenerateName, pc.Namespace = "engine-", target.Namespace
	cluster.Create(t, pc)
	if want == "" {
		cluster.AwaitFinal(t, pc, time.Minute)
		e := cluster.Entry(t, pc, target.Name)
		if e.Phase != sondev1.PhaseFailed || e.Reason != sondev1.ReasonProbeError || !strings.Contains(e.Message, wantMessage) {
			t.Errorf("%+v, want Failed, ProbeError and %q", e, wantMessage)
		}
		return
	}
	cluster.AwaitCapturing(t, pc)
	cluster.Send(t, sender, cluster.UDPAddr(target.Status.PodIP), 1, 500)
	cluster.Stop(t, pc)
	e := cluster.Entry(t, pc, target.Name)
	if e.Phase != sondev1.PhaseCompleted || e.Engine != want || !strings.Contains(e.EngineMessage, wantMessage) || wantMessage == "" && want != "clsact" && e.EngineMessage != "" {
		t.Errorf("%+v, want Completed with engine %s and message %q", e, want, wantMessage)
	}
	if different, n := cluster.Download(t, pc)[target.Name].Count(1); different != 500 || n != 500 {
		t.Errorf("got %d numbers in %d packets, want 500", different, n)
	}
}

// addPPP adds an interface "odd" to a Pod until the test ends. Its packets have a link-layer header that the file
// cannot hold.
func addPPP(t *testing.T, p *corev1.Pod) {
	t.Helper()
	made := make(chan error)
	var fd int
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		made <- func() (err error) {
			if err := enterNetwork(p); err != nil {
				return err
			}
			fd, err = openPPP("odd")
			return err
		}()
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // also deletes the interface
}

// enterNetwork moves the thread into the network namespace of a Pod of the local cluster.
func enterNetwork(p *corev1.Pod) error {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, file := range groups {
		// A process that has ended has no cgroups.
		text, _ := os.ReadFile(file)
		if uid := string(p.UID); !strings.Contains(string(text), uid) && !strings.Contains(string(text), strings.ReplaceAll(uid, "-", "_")) {
			continue
		}
		ns, err := os.Open(filepath.Join(filepath.Dir(file), "ns/net"))
		if err != nil {
			continue
		}
		defer ns.Close()
		return os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET))
	}
	return os.ErrNotExist
}

// openPPP creates an interface without an Ethernet header whose hardware type is PPP.
func openPPP(name string) (fd int, err error) {
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, os.NewSyscallError("open /dev/net/tun", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return -1, os.NewSyscallError("TUNSETIFF", err)
	}
	return fd, os.NewSyscallError("TUNSETLINK", unix.IoctlSetInt(fd, unix.TUNSETLINK, unix.ARPHRD_PPP))
}
