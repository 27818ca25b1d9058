//go:build e2e

package operations

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Ports of the manager's Pods.
const (
	webhookPort = 9443
	resultsPort = 9444
)

// lease returns the lease that the replicas compete for.
func lease(ctx context.Context) (*coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}, &l)
	return &l, err
}

// leader returns the replica that runs the controllers, and its identity.
func leader(t *testing.T) (leading *corev1.Pod, identity string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "a leader", func(ctx context.Context) error {
		l, err := lease(ctx)
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			return fmt.Errorf("lease without a holder: %+v", l.Spec)
		}
		identity = *l.Spec.HolderIdentity
		name, _, _ := strings.Cut(identity, "_")
		leading = &corev1.Pod{}
		return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: name}, leading)
	})
	return leading, identity
}

// otherLeader waits until a process with another identity leads.
func otherLeader(t *testing.T, than string) *coordinationv1.Lease {
	t.Helper()
	var l *coordinationv1.Lease
	cluster.Eventually(t, time.Minute, "another leader", func(ctx context.Context) (err error) {
		if l, err = lease(ctx); err != nil {
			return err
		}
		if h := l.Spec.HolderIdentity; h == nil || *h == "" || *h == than {
			return fmt.Errorf("lease %+v", l.Spec)
		}
		return nil
	})
	return l
}

// signalManager sends a signal to the process of one replica, on its node.
func signalManager(t *testing.T, p *corev1.Pod, signal string) {
	t.Helper()
	cluster.OnNode(t, p.Spec.NodeName, "kill", "-"+signal, managerPID(t, p))
}

// managerPID returns the process ID of one replica on its node.
func managerPID(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	for line := range strings.Lines(cluster.OnNode(t, p.Spec.NodeName, "ps", "-e", "-o", "pid,args")) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.Atoi(pid); err != nil || !strings.HasPrefix(strings.TrimSpace(args), "/manager ") {
			continue
		}
		if strings.Contains(cluster.OnNode(t, p.Spec.NodeName, "cat", "/proc/"+pid+"/cgroup"), id) {
			return pid
		}
	}
	t.Fatalf("no process of %s on %s", p.Name, p.Spec.NodeName)
	return ""
}

// podProxy returns the API path of a port of one replica. A Service would choose a replica itself.
func podProxy(p *corev1.Pod, port int) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/https:%s:%d/proxy", p.Namespace, p.Name, port)
}

// accessToken creates a ResultAccess for a capture and returns its token.
func accessToken(t *testing.T, pc *sondev1.PacketCapture) string {
	t.Helper()
	token := rand.Text()
	sum := sha256.Sum256([]byte(token))
	ra := &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: pc.Namespace},
		Spec:       sondev1.ResultAccessSpec{CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: pc.Name}, TokenHash: hex.EncodeToString(sum[:])},
	}
	if err := cluster.Admin.Create(t.Context(), ra); err != nil {
		t.Fatal(err)
	}
	return token
}

// filePath is the path of an entry's first file at the results endpoint.
func filePath(pc *sondev1.PacketCapture, e sondev1.PodResult) string {
	return fmt.Sprintf("/v1/namespaces/%s/packetcaptures/%s/files/%s/%s", pc.Namespace, pc.Name, e.UID, e.Files[0].Name)
}

// stream opens a file at one replica.
func stream(ctx context.Context, p *corev1.Pod, path, token string) (io.ReadCloser, error) {
	cs, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	return cs.RESTClient().Get().AbsPath(podProxy(p, resultsPort)+path).SetHeader("X-Sonde-Token", token).Stream(ctx)
}

// sizeAt returns the number of bytes of a Pod's file that one replica serves.
func sizeAt(t *testing.T, p *corev1.Pod, pc *sondev1.PacketCapture, e sondev1.PodResult, token string) int64 {
	t.Helper()
	var n int64
	cluster.Eventually(t, 10*time.Second, "file served by "+p.Name, func(ctx context.Context) error {
		body, err := stream(ctx, p, filePath(pc, e), token) // the replica may not have read the token yet
		if err != nil {
			return err
		}
		defer body.Close()
		n, err = io.Copy(io.Discard, body)
		return err
	})
	return n
}

// stopPatch ends a capture early.
func stopPatch() client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stop":true}}`))
}
