//go:build e2e

package operations

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// Expired certificates are renewed within a minute, by running managers and by starting ones, and both replicas serve a
// certificate that the API server trusts.
func TestOpsCertificateExpired(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cases := map[string]struct {
		age     time.Duration
		stopped bool
	}{
		"certificate":                           {age: 91 * 24 * time.Hour},
		"authority and certificate":             {age: 3 * 365 * 24 * time.Hour},
		"while no manager ran, for a long time": {age: 3 * 365 * 24 * time.Hour, stopped: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old := madeAgo(t, tc.age)
			if tc.stopped {
				cluster.StopManager(t)
				trust(t, old["ca-bundle.crt"])
			}
			var secret corev1.Secret
			key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: certs.SecretName}
			if err := cluster.Admin.Get(t.Context(), key, &secret); err != nil {
				t.Fatal(err)
			}
			secret.Data = old
			if err := cluster.Admin.Update(t.Context(), &secret); err != nil {
				t.Fatal(err)
			}
			if tc.stopped {
				cluster.StartManager(t)
			}
			pods := cluster.ManagerPods(t)
			cluster.Eventually(t, time.Minute, "renewed", func(ctx context.Context) error {
				if err := cluster.Admin.Get(ctx, key, &secret); err != nil {
					return err
				}
				if string(secret.Data["tls.crt"]) == string(old["tls.crt"]) {
					return fmt.Errorf("the Secret still holds the expired certificate")
				}
				for i := range pods {
					if err := trusted(ctx, &pods[i]); err != nil {
						return fmt.Errorf("%s: %w", pods[i].Name, err)
					}
				}
				pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink"}}
				return cluster.Admin.Create(ctx, pc, client.DryRunAll)
			})
		})
	}
}

// madeAgo returns the Secret that a manager wrote this long ago.
func madeAgo(t *testing.T, age time.Duration) map[string][]byte {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	if err := certs.NewManager(c, cluster.OperatorNamespace, clocktesting.NewFakeClock(time.Now().Add(-age))).Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var s corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: certs.SecretName}, &s); err != nil {
		t.Fatal(err)
	}
	return s.Data
}

// trust makes the API server trust an authority for the webhooks, as it did when the authority was new.
func trust(t *testing.T, bundle []byte) {
	t.Helper()
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		t.Fatal(err)
	}
	for i := range hook.Webhooks {
		hook.Webhooks[i].ClientConfig.CABundle = bundle
	}
	if err := cluster.Admin.Update(t.Context(), &hook); err != nil {
		t.Fatal(err)
	}
}

// trusted returns an error unless the API server would accept the certificate that one replica serves.
func trusted(ctx context.Context, p *corev1.Pod) error {
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hook.Webhooks[0].ClientConfig.CABundle)
	address, stop, err := cluster.Forward(p, webhookPort)
	if err != nil {
		return err
	}
	defer stop()
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: certs.ServiceWebhook + "." + cluster.OperatorNamespace + ".svc"}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
