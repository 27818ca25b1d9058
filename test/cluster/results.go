package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// ResultAccess grants the bearer of token the results of a capture.
func ResultAccess(capture sondev1.Capture, token string) *sondev1.ResultAccess {
	sum := sha256.Sum256([]byte(token))
	of := sondev1.CaptureReference{Kind: sondev1.CaptureKind(capture.KindName()), Name: capture.GetName()}
	return &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: capture.GetNamespace()},
		Spec:       sondev1.ResultAccessSpec{CaptureRef: of, TokenHash: hex.EncodeToString(sum[:])},
	}
}

// ResultPath is the path of a capture at the results endpoint.
func ResultPath(capture sondev1.Capture) string {
	k, _ := kind.CaptureOf(capture.KindName())
	return "/v1/namespaces/" + capture.GetNamespace() + "/" + k.Resource + "/" + capture.GetName()
}

// GrantResults creates a token for a capture's results and waits until the endpoint accepts it.
func GrantResults(t *testing.T, c client.Client, capture sondev1.Capture) string {
	t.Helper()
	token := rand.Text() + rand.Text()
	// An API server knows new rights only after a moment.
	access := ResultAccess(capture, token)
	Eventually(t, 15*time.Second, "ResultAccess created", func(ctx context.Context) error { return c.Create(ctx, access) })
	Eventually(t, 10*time.Second, "token accepted", func(context.Context) error {
		if status, body := GetResult(t, "mallory", ResultPath(capture)+"/files/x/x.pcapng", token); status != http.StatusNotFound {
			return fmt.Errorf("status %d, want 404: %s", status, body)
		}
		return nil
	})
	return token
}

// GetResult requests a path of the results endpoint through the API server. It sends the path unchanged, without
// cleaning it.
func GetResult(t *testing.T, user, path, token string) (int, string) {
	t.Helper()
	resp, err := OpenResult(t.Context(), user, path, token)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// OpenResult is GetResult for a stream: the caller reads and closes the body.
func OpenResult(ctx context.Context, user, path, token string) (*http.Response, error) {
	return OpenResultWith(ctx, ConfigAs(user), path, token)
}

// OpenResultWith is OpenResult for a user with a configuration of their own.
func OpenResultWith(ctx context.Context, c *rest.Config, path, token string) (*http.Response, error) {
	transport, err := rest.TransportFor(c)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Host, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.URL.Opaque = "//" + req.URL.Host + "/api/v1/namespaces/" + OperatorNamespace + "/services/https:sonde-results:https/proxy" + path
	if token != "" {
		req.Header.Set("X-Sonde-Token", token)
	}
	return transport.RoundTrip(req)
}

// Events returns the notes of the Events of an object that have a reason.
func Events(ctx context.Context, o client.Object, reason string) ([]string, error) {
	var all corev1.EventList
	if err := Admin.List(ctx, &all, client.InNamespace(o.GetNamespace())); err != nil {
		return nil, err
	}
	var notes []string
	for i := range all.Items {
		if e := &all.Items[i]; e.Reason == reason && e.InvolvedObject.UID == o.GetUID() {
			notes = append(notes, e.Message)
		}
	}
	return notes, nil
}

// GetRaw requests a path of the API server as a user, with a results token, and returns the HTTP status.
func GetRaw(ctx context.Context, t *testing.T, user, path, token string) int {
	t.Helper()
	c := rest.CopyConfig(Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	cs, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	req := cs.RESTClient().Get().AbsPath(path)
	if token != "" {
		req = req.SetHeader("X-Sonde-Token", token)
	}
	var code int
	res := req.Do(ctx).StatusCode(&code)
	var status apierrors.APIStatus
	if err := res.Error(); code == 0 && errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	return code
}
