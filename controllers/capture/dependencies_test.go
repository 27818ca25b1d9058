package capture

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

func TestStampKey(t *testing.T) {
	t.Parallel()
	key := make([]byte, stamp.KeyBytes)
	pc := newCapture()
	annotations, err := stamp.Sign(key, pc.Namespace, pc.KindName(), pc.Spec, stamp.Claim{Requester: access.Requester{Username: "alice"}, IssuedAt: dawn})
	if err != nil {
		t.Fatal(err)
	}
	pc.Annotations = annotations
	if claim, err := StampKey(key).Verify(pc); err != nil || claim.Requester.Username != "alice" {
		t.Errorf("claim %+v (%v), want alice's", claim, err)
	}
	pc.Spec.Stop = true // not covered by the stamp
	if _, err := StampKey(key).Verify(pc); err != nil {
		t.Errorf("stopping breaks the stamp: %v", err)
	}
	pc.Spec.TargetDeployment = "another"
	if _, err := StampKey(key).Verify(pc); err == nil {
		t.Error("a stamp for one target is valid for another")
	}
}

func TestKeeperCalls(t *testing.T) {
	t.Parallel()
	pairs, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	config, err := keeperapi.ServerTLS(pairs[captureconfig.SecretServerCert], pairs[captureconfig.SecretServerKey], pairs[captureconfig.SecretClientCert])
	if err != nil {
		t.Fatal(err)
	}
	if pairs[captureconfig.SecretClientKey], err = sealed.Seal(scheduleKey, "s", captureconfig.SecretClientKey, pairs[captureconfig.SecretClientKey]); err != nil {
		t.Fatal(err)
	}
	const address = "127.83.79.78" // a loopback address for this test alone, because the port is fixed
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "8443"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.Method + " " + r.URL.Path + " " + string(body)
		keeperapi.SetVersion(w.Header())
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = server.Serve(tls.NewListener(listener, config)) }()
	t.Cleanup(func() { _ = server.Close() })

	w := newWorld(t, newCapture(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: operatorNamespace}, Data: pairs},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: operatorNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "copied", Namespace: operatorNamespace}, Data: pairs})
	calls := KeeperCalls{Reader: w.client, Namespace: operatorNamespace, Key: scheduleKey, Timeout: 10 * time.Second}
	if err := calls.Stop(t.Context(), address, "s", "Stopped"); err != nil {
		t.Fatal(err)
	}
	if got, want := <-asked, `POST /v1/stop {"reason":"Stopped"}`; got != want {
		t.Errorf("the keeper was asked %s, want %s", got, want)
	}
	if _, err := calls.Recount(t.Context(), address, "s"); err == nil || !strings.Contains(err.Error(), "parse account") { // the answer is empty
		t.Errorf("error %v, want one about the account", err)
	}
	if got, want := <-asked, `POST /v1/recount `; got != want {
		t.Errorf("the keeper was asked %s, want %s", got, want)
	}
	for name, tc := range map[string]struct{ address, secret, want string }{
		"no secret":    {address, "gone", "get secret gone"},
		"no key":       {address, "empty", "Secret empty has no client.key"},
		"another key":  {address, "copied", "it was sealed with another key"},
		"not a keeper": {"127.83.79.79", "s", "stop the probe at 127.83.79.79:8443"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := calls.Stop(t.Context(), tc.address, tc.secret, "Stopped"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestSecretHidesTheManagersKey: the kubelets of a capture's nodes may read its Secret.
func TestSecretHidesTheManagersKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	var list corev1.SecretList
	if err := w.client.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d Secrets, %v", len(list.Items), err)
	}
	data := list.Items[0].Data
	if _, err := tls.X509KeyPair(data[captureconfig.SecretClientCert], data[captureconfig.SecretClientKey]); err == nil {
		t.Error("it has the manager's key")
	}
	own, err := sealed.Open(w.r.Key, list.Items[0].Name, captureconfig.SecretClientKey, data[captureconfig.SecretClientKey])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(data[captureconfig.SecretClientCert], own); err != nil {
		t.Error(err)
	}
}
