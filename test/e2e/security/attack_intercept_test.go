//go:build e2e

package security

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/intercept"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/cluster"
)

const developer = "x-developer=alice"

// interceptor is a tenant that may intercept in a namespace, and does so.
type interceptor struct {
	ns   string
	web  corev1.Pod
	user client.Client
	q    *sondev1.InterceptRequest
}

// newInterceptor intercepts requests with the header, which a process called name answers.
func newInterceptor(t *testing.T, name string) *interceptor {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, name, "admin")
	cluster.Bind(t, ns, name, "sonde-intercept")
	i := &interceptor{ns: ns, web: cluster.ReadyPods(t, cluster.Deployment(t, ns, "web", 1, "serve"), 1)[0], user: cluster.As(t, name)}
	cluster.Intercept(t, ns, "web", 1, "--as", name, "--as-group", "system:authenticated", "--to", cluster.Laptop(t, name), "--header", developer, "--name", "web")
	i.q = &sondev1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	if err := i.user.Get(t.Context(), client.ObjectKeyFromObject(i.q), i.q); err != nil {
		t.Fatal(err)
	}
	return i
}

// answeredBy fails the test unless requests with the header are answered by who.
func (i *interceptor) answeredBy(t *testing.T, from *corev1.Pod, who string) {
	t.Helper()
	if got, err := cluster.Ask(t.Context(), from, &i.web, developer); err != nil || got != who {
		t.Errorf("a request to %s is answered by %q (%v), want %q", i.web.Name, got, err, who)
	}
}

// request is an InterceptRequest of a tenant for its Deployment, with a client key.
func (i *interceptor) request(name, key string) *sondev1.InterceptRequest {
	return &sondev1.InterceptRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.ns, Name: name},
		Spec: sondev1.InterceptRequestSpec{
			TargetDeployment: "web", TargetContainerPort: 8080, DestinationIP: "127.0.0.1", DestinationPort: 1, ClientKey: key,
			Match: &sondev1.InterceptMatch{Headers: []sondev1.HeaderMatch{{Name: "x-" + name, TextMatch: sondev1.TextMatch{Exact: new("1")}}}},
		},
	}
}

// Two tenants intercept, each in its namespace. One tries to read, to route to, to guess and to take the key of the other.
func TestAttackIntercepts(t *testing.T) {
	victim, attacker := newInterceptor(t, "victoria"), newInterceptor(t, "mallory")
	asker := cluster.Pod(t, attacker.ns, "asker", cluster.PodSpec("idle"))
	stowaway := tunnel.PublicKey(victim.q.Status.StowawayKey)
	t.Run("control: both work", func(t *testing.T) {
		victim.answeredBy(t, asker, "victoria")
		attacker.answeredBy(t, asker, "mallory")
	})
	t.Run("protected: read", func(t *testing.T) {
		live := &sondev1.InterceptRequest{}
		wantForbidden(t, attacker.user.Get(t.Context(), client.ObjectKeyFromObject(victim.q), live), "cannot get resource")
		wantForbidden(t, attacker.user.List(t.Context(), &sondev1.InterceptRequestList{}), "cannot list resource")
		away := attacker.request("away", newKey(t))
		away.Spec.TargetNamespace = victim.ns
		wantForbidden(t, attacker.user.Create(t.Context(), away), "target")
		there := attacker.request("there", newKey(t))
		there.Namespace = victim.ns
		wantForbidden(t, attacker.user.Create(t.Context(), there), "cannot create resource")
		for _, o := range []client.Object{cluster.CarrierPod(t, &victim.web), cluster.CarrierPod(t, &attacker.web)} {
			if _, err := cluster.ExecAs(t.Context(), cluster.ConfigAs("mallory"), o.(*corev1.Pod), "exec", "carrier", "/agent"); err == nil {
				t.Errorf("exec into %s is allowed", o.GetName())
			}
		}
	})
	t.Run("control: read in one's own namespace", func(t *testing.T) {
		if err := attacker.user.List(t.Context(), &sondev1.InterceptRequestList{}, client.InNamespace(attacker.ns)); err != nil {
			t.Error(err)
		}
	})
	t.Run("protected: route to", func(t *testing.T) {
		patch := mergePatch(`{"spec":{"destinationPort":1}}`)
		wantForbidden(t, attacker.user.Patch(t.Context(), victim.q.DeepCopy(), patch), "cannot patch resource")
		if err := victim.user.Patch(t.Context(), victim.q.DeepCopy(), mergePatch(`{"spec":{"targetDeployment":"other"}}`)); err == nil {
			t.Error("the target of an InterceptRequest can be changed")
		}
		// The victim's key is in the cluster, so it may leak. It is worth nothing without the private half.
		copied := attacker.request("copied", victim.q.Spec.ClientKey)
		if err := attacker.user.Create(t.Context(), copied); err == nil || !strings.Contains(err.Error(), "has the same key") {
			t.Errorf("a request with another's key: %v", err)
		}
		time.Sleep(5 * time.Second) // some passes of the manager
		victim.answeredBy(t, asker, "victoria")
	})
	t.Run("protected: guess", func(t *testing.T) {
		identity, err := tunnel.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		if err := dialAs(t, "mallory", identity, stowaway); err == nil {
			t.Error("Stowaway takes a client with a key of no InterceptRequest")
		}
		if err := dialPeer(t, identity, stowaway); err == nil {
			t.Error("Stowaway takes a peer with a key of no carrier")
		}
	})
	t.Run("control: a key of an InterceptRequest, and not a second longer", func(t *testing.T) {
		identity, err := tunnel.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		q := attacker.request("known", string(identity.Key))
		cluster.CreateEventually(t, attacker.user, q)
		cluster.Eventually(t, 30*time.Second, "the client's key is taken", func(context.Context) error { return dialAs(t, "mallory", identity, stowaway) })
		if err := dialPeer(t, identity, stowaway); err == nil {
			t.Error("Stowaway takes a client's key as a carrier's")
		}
		cluster.DeleteNow(t, q)
		cluster.Eventually(t, 5*time.Second, "the key of a deleted request is refused", func(context.Context) error {
			if dialAs(t, "mallory", identity, stowaway) == nil {
				return errors.New("it is taken")
			}
			return nil
		})
	})
	t.Run("protected: take the key", func(t *testing.T) {
		for _, name := range []string{tunnel.Name, cluster.CarrierPod(t, &victim.web).Labels[batchv1.JobNameLabel]} {
			wantForbidden(t, attacker.user.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: name}, &corev1.Secret{}), "cannot get resource")
		}
		// The Service's other port is for the manager and the carriers.
		out, err := exec.CommandContext(t.Context(), cluster.Command, "kubectl", "--as", "mallory", "--as-group", "system:authenticated", "get", "--raw",
			"/api/v1/namespaces/"+cluster.OperatorNamespace+"/services/"+tunnel.Name+":"+tunnel.PeerPortName+"/proxy/").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "forbidden") {
			t.Errorf("the peers' port through services/proxy: %v, %s; want it forbidden", err, out)
		}
	})
	t.Run("protected: afterwards", func(t *testing.T) {
		victim.answeredBy(t, asker, "victoria")
		attacker.answeredBy(t, asker, "mallory")
	})
}

// An editor may create InterceptRequests, but gets nothing without the verb intercept.
func TestAttackInterceptWithoutTheVerb(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "serve")
	cluster.Bind(t, ns, "eve", "edit")
	eve, i := cluster.As(t, "eve"), &interceptor{ns: ns}
	cluster.Eventually(t, 10*time.Second, "refused by the webhook", func(ctx context.Context) error {
		if err := eve.Create(ctx, i.request("first", newKey(t))); err == nil || !strings.Contains(err.Error(), "lacks the verb intercept on pods") {
			return fmt.Errorf("got %w, want a refusal that names the verb", err)
		}
		return nil
	})
	// Control: with the verb.
	cluster.Bind(t, ns, "eve", "sonde-intercept")
	cluster.CreateEventually(t, eve, i.request("third", newKey(t)))
	// Without it again, the request ends within a minute, and its key is refused.
	out, err := exec.CommandContext(t.Context(), cluster.Command, "kubectl", "delete", "rolebindings", "-n", ns, "--all").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster.Eventually(t, 90*time.Second, "the request ended", func(ctx context.Context) error {
		q := &sondev1.InterceptRequest{}
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "third"}, q); err != nil || q.Status.Phase != sondev1.InterceptFailed {
			return fmt.Errorf("phase %s: %w", q.Status.Phase, err)
		}
		return nil
	})
	cluster.NoIntercepts(t, time.Minute)
}

func newKey(t *testing.T) string {
	t.Helper()
	identity, err := tunnel.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return string(identity.Key)
}

// dialAs connects to Stowaway as a client, through the API server, and asks for an answer.
func dialAs(t *testing.T, user string, identity *tunnel.Identity, stowaway tunnel.PublicKey) error {
	t.Helper()
	d, err := intercept.NewDialer(cluster.ConfigAs(user), cluster.OperatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := d.Dial(ctx, identity, stowaway)
	if err != nil {
		return err
	}
	defer c.Close()
	return alive(c)
}

// alive returns an error if the other side ends a connection at once, as TLS 1.3 does with a client that it refuses.
func alive(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			return err
		}
	}
	return nil
}

// dialPeer connects to the port of the manager and the carriers, from the machine of the cluster.
func dialPeer(t *testing.T, identity *tunnel.Identity, stowaway tunnel.PublicKey) error {
	t.Helper()
	address, stop, err := cluster.Forward(cluster.StowawayPod(t), tunnel.PeerPort)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := tls.Client(raw, identity.ClientTLS(stowaway))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := tunnel.Handshake(ctx, c); err != nil {
		return err
	}
	return alive(c)
}
