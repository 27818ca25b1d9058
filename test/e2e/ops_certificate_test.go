//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// What has expired is renewed within a minute, by running managers and by those that start, and both
// replicas serve what the API server trusts.
func TestOpsCertificateExpired(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
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
				stopManager(t)
				trust(t, old["ca-bundle.crt"])
			}
			var secret corev1.Secret
			key := client.ObjectKey{Namespace: operatorNamespace, Name: certs.SecretName}
			if err := admin.Get(t.Context(), key, &secret); err != nil {
				t.Fatal(err)
			}
			secret.Data = old
			if err := admin.Update(t.Context(), &secret); err != nil {
				t.Fatal(err)
			}
			if tc.stopped {
				startManager(t)
			}
			pods := managerPods(t)
			eventually(t, time.Minute, "renewed", func(ctx context.Context) error {
				if err := admin.Get(ctx, key, &secret); err != nil {
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
				return admin.Create(ctx, pc, client.DryRunAll)
			})
		})
	}
}

// madeAgo is what a manager wrote into the Secret so long ago.
func madeAgo(t *testing.T, age time.Duration) map[string][]byte {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	if err := certs.NewManager(c, operatorNamespace, clocktesting.NewFakeClock(time.Now().Add(-age))).Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var s corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: certs.SecretName}, &s); err != nil {
		t.Fatal(err)
	}
	return s.Data
}

// trust makes the API server trust an authority for the webhooks, as it did when that was new.
func trust(t *testing.T, bundle []byte) {
	t.Helper()
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		t.Fatal(err)
	}
	for i := range hook.Webhooks {
		hook.Webhooks[i].ClientConfig.CABundle = bundle
	}
	if err := admin.Update(t.Context(), &hook); err != nil {
		t.Fatal(err)
	}
}

// trusted says whether the API server would take the certificate that one replica serves.
func trusted(ctx context.Context, p *corev1.Pod) error {
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := admin.Get(ctx, client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hook.Webhooks[0].ClientConfig.CABundle)
	address, stop, err := forward(p, webhookPort)
	if err != nil {
		return err
	}
	defer stop()
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: certs.ServiceWebhook + "." + operatorNamespace + ".svc"}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// forward opens a way to one port of one Pod.
func forward(p *corev1.Pod, port int) (address string, stop func(), err error) {
	cs, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, err
	}
	url := cs.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	end, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	fw, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, end, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	go func() { failed <- fw.ForwardPorts() }()
	select {
	case err := <-failed:
		return "", nil, err
	case <-ready:
	}
	ports, err := fw.GetPorts()
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(end) }, nil
}
