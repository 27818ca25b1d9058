//go:build e2e

package operations

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/audit"
)

// Each request, capture and download leaves a line in the log of the replica that handled it, also if it was refused,
// stopped or cut off.
func TestOpsAuditLog(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	cluster.Bind(t, ns, "alice", "admin")
	cluster.Bind(t, ns, "bob", "admin")
	refused := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "24h"}}
	if err := cluster.As(t, "alice").Create(t.Context(), refused); err == nil {
		t.Fatal("a capture above the ceiling was admitted")
	}
	pc := cluster.Capture(t, cluster.As(t, "alice"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, 60000, "-size", "1400")
	if err := cluster.As(t, "bob").Patch(t.Context(), pc, stopPatch()); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitFinal(t, pc, time.Minute)
	e := pc.Status.Pods[0]
	token := accessToken(t, pc)
	pods := cluster.ManagerPods(t)
	for i := range pods {
		sizeAt(t, &pods[i], pc, e, token)
		if body, err := stream(t.Context(), &pods[i], filePath(pc, e), "a token without a ResultAccess"); err == nil {
			body.Close()
			t.Error("got a file without a token, want a refusal")
		}
	}
	breakOff(t, &pods[0], pc, token)

	both := func(action string, fields map[string]any) []wantedLine {
		return []wantedLine{{pods[0].Name, action, fields}, {pods[1].Name, action, fields}}
	}
	name, bytes := ns+"/"+pc.Name, float64(e.Files[0].Bytes)
	wanted := []wantedLine{
		{"", audit.RequestRefused, map[string]any{"PacketCapture": ns + "/refused", "requester": "alice"}},
		{"", audit.RequestAdmitted, map[string]any{"namespace": ns, "requester": "alice"}},
		{"", audit.CaptureStarted, map[string]any{"captureUID": string(pc.UID), "requester": "alice", "targetNamespace": ns, "target": "Deployment/sink", "filter": "udp"}},
		{"", audit.StopRequested, map[string]any{"PacketCapture": name, "requester": "bob"}},
		{"", audit.CaptureEnded, map[string]any{"captureUID": string(pc.UID), "requester": "alice", "packets": float64(60000), "phase": "Completed", "reason": "Stopped"}},
		{pods[0].Name, audit.ResultServed, map[string]any{"captureUID": string(pc.UID), "requester": "kubernetes-admin", "outcome": "broken off"}},
	}
	wanted = append(wanted, both(audit.ResultServed, map[string]any{"captureUID": string(pc.UID), "requester": "kubernetes-admin", "bytes": bytes, "outcome": "whole", "pod": p.Name})...)
	wanted = append(wanted, both(audit.ResultRefused, map[string]any{"PacketCapture": name, "code": float64(401)})...)
	// The error of the last check says more than that the time is over.
	cluster.Eventually(t, 20*time.Second, "audit lines", func(context.Context) error {
		ctx := t.Context()
		lines := map[string][]map[string]any{}
		for i := range pods {
			found, err := auditLines(ctx, &pods[i])
			if err != nil {
				return err
			}
			lines[pods[i].Name] = found
			lines[""] = append(lines[""], found...)
		}
		for _, w := range wanted {
			if !w.in(lines[w.replica]) {
				return fmt.Errorf("found no line %+v", w)
			}
		}
		return nil
	})
}

// Each downloaded file has an Event that names it, also if they are downloaded at the same time.
func TestOpsEventOfEachFile(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	const files = 5
	cluster.Deployment(t, ns, "sink", files, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	if got := cluster.DownloadFiles(t, pc, ".pcapng"); len(got) != files {
		t.Fatalf("%d files downloaded, want %d", len(got), files)
	}
	cluster.Eventually(t, 20*time.Second, "an Event of each file", func(ctx context.Context) error {
		notes, err := cluster.Events(ctx, pc, "ResultServed")
		if err != nil {
			return err
		}
		all := strings.Join(notes, "\n")
		for i := range pc.Status.Pods {
			e := &pc.Status.Pods[i]
			want := fmt.Sprintf(" read %d bytes of %s of Pod %s (whole)", e.Files[0].Bytes, e.Files[0].Name, e.Name)
			if n := strings.Count(all, want); n != 1 {
				return fmt.Errorf("%d Events %q in\n%s", n, want, all)
			}
		}
		return nil
	})
}

// wantedLine is a line that the log of one replica, or of any, must contain.
type wantedLine struct {
	replica, action string
	fields          map[string]any
}

func (w wantedLine) in(lines []map[string]any) bool {
	for _, l := range lines {
		same := l[audit.Key] == w.action
		for k, v := range w.fields {
			got := l[k]
			if o, ok := got.(map[string]any); ok { // controllers log the object like this
				got = fmt.Sprintf("%v/%v", o["namespace"], o["name"])
			}
			same = same && got == v
		}
		if same {
			return true
		}
	}
	return false
}

// auditLines returns the audit lines in one replica's log. It skips lines that are not JSON.
func auditLines(ctx context.Context, p *corev1.Pod) ([]map[string]any, error) {
	cs, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	log, err := cs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var found []map[string]any
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l map[string]any
		if strings.Contains(lines.Text(), `"`+audit.Key+`"`) && json.Unmarshal(lines.Bytes(), &l) == nil {
			found = append(found, l)
		}
	}
	return found, lines.Err()
}

// breakOff starts a download at one replica and closes the connection.
func breakOff(t *testing.T, p *corev1.Pod, pc *sondev1.PacketCapture, token string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := stream(ctx, p, filePath(pc, pc.Status.Pods[0]), token)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.CopyN(io.Discard, body, 1<<20); err != nil {
		t.Fatal(err)
	}
}
