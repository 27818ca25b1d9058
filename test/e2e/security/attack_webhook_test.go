//go:build e2e

package security

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// creations has n clients of a user create an object again and again, as a dry run, until stop is called, which returns the answers by
// HTTP status and the last message of each.
func creations(t *testing.T, user string, o *sondev1.PacketCapture, n int) (stop func() (map[int]int, map[int]string)) {
	t.Helper()
	o.APIVersion, o.Kind = sondev1.GroupVersion.String(), "PacketCapture"
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.ConfigAs(user)
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var mu sync.Mutex
	statuses, messages := map[int]int{}, map[int]string{}
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Host+"/apis/"+sondev1.GroupVersion.String()+"/namespaces/"+o.Namespace+"/packetcaptures?dryRun=All", bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				status, text := 0, ""
				if resp, err := transport.RoundTrip(req); err != nil {
					text = err.Error()
				} else {
					b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
					resp.Body.Close()
					status, text = resp.StatusCode, string(b)
				}
				if ctx.Err() == nil {
					mu.Lock()
					statuses[status]++
					messages[status] = text
					mu.Unlock()
				}
			}
		})
	}
	return func() (map[int]int, map[int]string) {
		cancel()
		group.Wait()
		return statuses, messages
	}
}

// beside has another tenant ask for captures for a while, and logs how long the answers took and the most memory that a
// manager had. Each must be admitted, and no manager may be restarted.
func beside(t *testing.T, other client.Client, ns string, lasting time.Duration) {
	t.Helper()
	var longest time.Duration
	var most int64
	asked := 0
	for begun := time.Now(); time.Since(begun) < lasting; asked++ {
		start := time.Now()
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "beside-"}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"},
		}
		// The API server, which works on the attack, too, may need longer than it gives the webhook.
		cluster.Eventually(t, time.Minute, "another tenant's capture", func(ctx context.Context) error { return other.Create(ctx, pc.DeepCopy(), client.DryRunAll) })
		longest, most = max(longest, time.Since(start)), max(most, largestManager(t))
	}
	notKilled(t)
	t.Logf("another tenant's %d captures were answered within %v; the manager had at most %d MiB", asked, longest.Round(time.Millisecond), most>>20)
}

// notKilled fails the test if a manager was killed, as for its memory, or panicked. It may end by itself (code 1) when the
// API server, which works on the attack, too, does not renew its lease in time.
func notKilled(t *testing.T) {
	t.Helper()
	for _, p := range cluster.ManagerPods(t) {
		for _, s := range p.Status.ContainerStatuses {
			if ended := s.LastTerminationState.Terminated; ended != nil && ended.ExitCode != 1 {
				t.Errorf("%s was restarted: %+v", p.Name, ended)
			} else if ended != nil {
				t.Logf("%s lost its lease", p.Name)
			}
		}
	}
}

// clients of an attack: more than any bound of the webhooks for one user, and few enough that the API server of a small
// machine, which has no bound, still answers others.
const clients = 24

// A user without the verb creates objects as large as the API server takes, many at a time. The manager refuses them without
// keeping them, and goes on answering others. The control is TestIntakeOnTheHeap: what each took of the heap before.
func TestAttackLargeObjects(t *testing.T) {
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Deployment(t, victimNS, "sink", 1, "sink")
	cluster.Bind(t, attackerNS, "mallory", "edit")
	cluster.Bind(t, victimNS, "victoria", "admin")
	victoria := cluster.As(t, "victoria")
	large := func(text int) *sondev1.PacketCapture {
		return &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: attackerNS, GenerateName: "large-", Annotations: map[string]string{"e2e/x": strings.Repeat("x", text)},
			},
			Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"},
		}
	}
	t.Run("no attack", func(t *testing.T) { beside(t, victoria, victimNS, 5*time.Second) })
	for name, tc := range map[string]struct {
		o        *sondev1.PacketCapture
		lasting  time.Duration
		want     int // the status that all but a few get
		wantText string
	}{
		"protected: 2.9 MiB":          {large(2900 << 10), time.Minute, http.StatusRequestEntityTooLarge, "at most 1024 KiB"},
		"protected: all that is read": {large(250 << 10), 20 * time.Second, http.StatusForbidden, "lacks the verb capture"},
	} {
		t.Run(name, func(t *testing.T) {
			stop := creations(t, "mallory", tc.o, clients)
			beside(t, victoria, victimNS, tc.lasting)
			statuses, messages := stop()
			t.Logf("answers to %d clients by status: %v", clients, statuses)
			if statuses[tc.want] < clients || !strings.Contains(messages[tc.want], tc.wantText) {
				t.Errorf("answers by status %v, like %.300q, want most %d with %q", statuses, messages[tc.want], tc.want, tc.wantText)
			}
			notKilled(t)
		})
	}
}

// A user with the verb has large captures, and a large Deployment, in their own namespace. For each new capture that sets a
// jobId the webhook compares it with all captures, in its cache, and reads the Deployment, one of four objects at a time.
func TestAttackLargeLookups(t *testing.T) {
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Deployment(t, victimNS, "sink", 1, "sink")
	cluster.Bind(t, attackerNS, "mallory", "admin")
	cluster.Bind(t, victimNS, "victoria", "admin")
	victoria, mallory := cluster.As(t, "victoria"), cluster.As(t, "mallory")
	large := cluster.Deployment(t, attackerNS, "sink", 0)
	patch := client.MergeFrom(large.DeepCopy())
	for i := range 7_000 { // three quarters of what the manager reads, half of them managed fields
		large.Spec.Template.Spec.Containers[0].Env = append(large.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("e", i), Value: strings.Repeat("x", 24)})
	}
	cluster.Eventually(t, time.Minute, "a large Deployment", func(ctx context.Context) error { return mallory.Patch(ctx, large, patch) })
	for i := range 20 {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: attackerNS, GenerateName: "large-", Annotations: map[string]string{"e2e/x": strings.Repeat("x", 250<<10)}, Labels: manyLabels(64),
			},
			Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", JobID: fmt.Sprintf("a%03d", i)},
		}
		if err := mallory.Create(t.Context(), pc); err != nil {
			t.Fatal(err)
		}
	}
	beside(t, victoria, victimNS, 5*time.Second)
	stop := creations(t, "mallory", &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: attackerNS, GenerateName: "one-more-"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", JobID: "a000"},
	}, clients)
	beside(t, victoria, victimNS, 20*time.Second)
	statuses, messages := stop()
	t.Logf("answers to %d clients by status: %v", clients, statuses)
	if !strings.Contains(messages[http.StatusUnprocessableEntity], "jobId a000 is in use") {
		t.Errorf("answers by status %v, like %.300q: want some after all lookups", statuses, messages[http.StatusUnprocessableEntity])
	}
}

// Connections that a Pod opens to the webhooks' port, and keeps open without a word, neither end a manager nor keep the
// API server out.
func TestAttackWebhookConnections(t *testing.T) {
	const limit = 512
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Deployment(t, victimNS, "sink", 1, "sink")
	cluster.Bind(t, victimNS, "victoria", "admin")
	victoria := cluster.As(t, "victoria")
	beside(t, victoria, victimNS, 5*time.Second)
	args := []string{"hold", "-n", "1000"}
	for _, p := range cluster.ManagerPods(t) {
		args = append(args, net.JoinHostPort(p.Status.PodIP, "9443"))
	}
	attacker := cluster.Pod(t, attackerNS, "mallory", cluster.PodSpec(args...))
	cluster.Eventually(t, time.Minute, "control: more connections than the managers keep", func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, attacker)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var open, closed int
		if _, err := fmt.Sscanf(lines[len(lines)-1], "open %d closed %d", &open, &closed); err != nil || open < limit/2 || closed < 1000-limit/2 {
			return fmt.Errorf("%d connections are open, %d were closed, %w", open, closed, err)
		}
		return nil
	})
	beside(t, victoria, victimNS, 30*time.Second)
}

// Requests with headers that never end, on all ports of the managers, take a bounded memory of theirs, and neither the
// kubelet's probes nor other tenants wait for them.
func TestAttackHeaders(t *testing.T) {
	const attackers = 3
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Deployment(t, victimNS, "sink", 1, "sink")
	cluster.Bind(t, victimNS, "victoria", "admin")
	victoria := cluster.As(t, "victoria")
	beside(t, victoria, victimNS, 5*time.Second)
	secure, plain := []string{"hold", "-n", "400", "-headers", "8000"}, []string{"hold", "-n", "100", "-headers", "8000", "-plain"}
	for _, p := range cluster.ManagerPods(t) {
		for _, port := range []string{"9443", "9444"} {
			secure = append(secure, net.JoinHostPort(p.Status.PodIP, port))
		}
		plain = append(plain, net.JoinHostPort(p.Status.PodIP, "8081"))
	}
	for i := range attackers {
		for kind, args := range map[string][]string{"secure": secure, "plain": plain} {
			pod := cluster.Pod(t, attackerNS, fmt.Sprint("mallory-", kind, "-", i), cluster.PodSpec(args...))
			cluster.Eventually(t, time.Minute, "control: more connections than the managers keep", func(ctx context.Context) error {
				text, err := cluster.Logs(ctx, pod)
				if err != nil {
					return err
				}
				lines := strings.Split(strings.TrimSpace(text), "\n")
				var open, closed int
				if _, err := fmt.Sscanf(lines[len(lines)-1], "open %d closed %d", &open, &closed); err != nil || closed < 300 {
					return fmt.Errorf("%d connections are open, %d were closed, %w", open, closed, err)
				}
				return nil
			})
		}
	}
	beside(t, victoria, victimNS, 30*time.Second)
	for _, p := range cluster.ManagerPods(t) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
				t.Errorf("%s is not ready: the kubelet's probes did not get through", p.Name)
			}
		}
	}
}
