//go:build e2e

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The command that most users type: it captures, waits, downloads, and merges the files in time order.
func TestPluginCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "web", 2, "serve")
	pods := cluster.ReadyPods(t, target, 2)
	client := cluster.Pod(t, ns, "client", cluster.PodSpec("load", "-url", fmt.Sprintf("http://%s:8080/", pods[0].Status.PodIP)))
	_ = client
	file := filepath.Join(t.TempDir(), "web.pcapng")
	cmd := osexec.CommandContext(t.Context(), cluster.Plugin, "capture", "deploy/web", "-n", ns, "--for", "5s", "--filter", "tcp port 8080", "-o", file, "--json")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), errOut.String())
	}
	var summary map[string]any
	if err := json.Unmarshal(out.Bytes(), &summary); err != nil {
		t.Errorf("--json printed %q: %v", out.String(), err)
	}
	if got := cluster.Read(t, file); got.Packets == 0 {
		t.Errorf("the file is empty; the plugin printed\n%s", errOut.String())
	}
	strictOrder(t, file)
	if strings.Contains(errOut.String(), "\x1b[") {
		t.Errorf("got escape sequences without a terminal:\n%q", errOut.String())
	}
}

// Ctrl-C stops the capture and still saves its packets.
func TestPluginInterrupted(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	pods := cluster.ReadyPods(t, target, 1)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	file := filepath.Join(t.TempDir(), "sink.pcapng")
	cmd := osexec.CommandContext(t.Context(), cluster.Plugin, "capture", "deploy/sink", "-n", ns, "--for", "10m", "--name", "mine", "-o", file)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pc := &sondev1.PacketCapture{}
	pc.Namespace, pc.Name = ns, "mine"
	cluster.AwaitCapturing(t, pc)
	cluster.Send(t, sender, cluster.UDPAddr(pods[0].Status.PodIP), 7, 500)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, out.String())
	}
	if different, n := cluster.Read(t, file).Count(7); different != 500 || n != 500 {
		t.Errorf("got %d numbers in %d packets, want 500; the plugin printed\n%s", different, n, out.String())
	}
}

// A refused capture prints the webhook's advice and leaves nothing behind.
func TestPluginRefused(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "serve")
	out, err := osexec.CommandContext(t.Context(), cluster.Plugin, "capture", "deploy/web", "-n", ns, "--for", "5s", "--filter", "port http").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "port 80") {
		t.Errorf("error %v, output\n%s\nwant a refusal with the number to use", err, out)
	}
	var list sondev1.PacketCaptureList
	if err := cluster.Admin.List(t.Context(), &list, client.InNamespace(ns)); err != nil || len(list.Items) != 0 {
		t.Errorf("%d captures are left, want none (%v)", len(list.Items), err)
	}
}

func strictOrder(t *testing.T, file string) {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), "capinfos", "-o", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "True") {
		t.Errorf("strict time order: %v\n%s", err, out)
	}
}

// Filters run in the kernel: packets that do not match are neither in the file nor counted.
func TestFilter(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: fmt.Sprintf("udp dst port %d and src host %s and greater 500", cluster.UDPPort, sender.Status.PodIP)})
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, 300, "-size", "600")
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 2, 300, "-size", "60")
	cluster.Send(t, &p, cluster.UDPAddr("127.0.0.1"), 3, 300, "-size", "600")
	cluster.Stop(t, pc)
	got := cluster.Download(t, pc)[p.Name]
	if different, _ := got.Count(1); different != 300 || got.Packets != 300 {
		t.Errorf("got %d of 300 matching packets and %d in all, want only the 300", different, got.Packets)
	}
	if e := cluster.Entry(t, pc, p.Name); e.Packets != 300 || e.Dropped.Total() != 0 {
		t.Errorf("status %+v, want 300 packets and none dropped", e)
	}
}

// maxPackets ends a Pod's capture with exactly this many packets in its file.
func TestPacketLimit(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	limit := int64(123)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp", MaxPackets: &limit})
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, 1000)
	cluster.Eventually(t, 30*time.Second, "limit reached", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if e := cluster.Entry(t, pc, p.Name); e.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonPacketLimit {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	cluster.Stop(t, pc)
	if got := cluster.Download(t, pc)[p.Name]; got.Packets != int(limit) {
		t.Errorf("got %d packets in the file, want exactly %d", got.Packets, limit)
	}
}

// Each capture and each download leaves an audit record: an Event on the capture that names the user and the amount.
func TestAuditEvents(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	cluster.Download(t, pc)
	cluster.Eventually(t, 20*time.Second, "events", func(ctx context.Context) error {
		var list corev1.EventList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		var lines []string
		for i := range list.Items {
			if list.Items[i].InvolvedObject.UID == pc.UID {
				lines = append(lines, list.Items[i].Reason+": "+list.Items[i].Message)
			}
		}
		all := strings.Join(lines, "\n")
		for _, want := range []string{string(sondev1.PhaseCapturing), string(sondev1.PhaseCompleted), "kubernetes-admin", "bytes"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("found no %q in\n%s", want, all)
			}
		}
		return nil
	})
}
