//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// A token opens the files of one capture, and a path names one of them: no token of another's, no guess, and no way around
// in the path leads anywhere else.
func TestAttackResults(t *testing.T) {
	hers, his := namespace(t, nil), namespace(t, nil)
	for _, ns := range []string{hers, his} {
		deployment(t, ns, "sink", 1, "sink")
	}
	bind(t, his, "mallory", "admin")
	victim := capture(t, admin, hers, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	mine := capture(t, as(t, "mallory"), his, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	second := capture(t, as(t, "mallory"), his, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	for _, pc := range []*sondev1.PacketCapture{victim, mine, second} {
		stop(t, pc)
	}
	token := grant(t, as(t, "mallory"), mine)
	hersToken := grant(t, admin, victim)
	file := func(pc *sondev1.PacketCapture) string {
		return "/v1/namespaces/" + pc.Namespace + "/packetcaptures/" + pc.Name + "/files/" + pc.Status.Pods[0].UID + "/" + pc.Status.Pods[0].Files[0].Name
	}
	t.Run("control: the right token", func(t *testing.T) {
		for pc, token := range map[*sondev1.PacketCapture]string{mine: token, victim: hersToken} {
			if status, body := result(t, "mallory", file(pc), token); status != http.StatusOK || !strings.HasPrefix(body, "\x0a\x0d\x0d\x0a") {
				t.Errorf("%s: status %d, %d bytes, want a pcapng file", pc.Namespace, status, len(body))
			}
		}
	})
	t.Run("protected: tokens", func(t *testing.T) {
		sum := sha256.Sum256([]byte(hersToken))
		for name, tc := range map[string]struct{ path, token string }{
			"one's own token for another's":     {file(victim), token},
			"for another capture of one's own":  {file(second), token},
			"a guess":                           {file(victim), rand.Text()},
			"the hash, which edit may read":     {file(victim), hex.EncodeToString(sum[:])},
			"none":                              {file(victim), ""},
			"a short one":                       {file(victim), "x"},
			"a part of it":                      {file(victim), hersToken[:len(hersToken)-1]},
			"more than it":                      {file(victim), hersToken + "x"},
			"two in one":                        {file(victim), token + "," + hersToken},
			"a Pod of another capture":          {path.Dir(path.Dir(file(mine))) + "/" + victim.Status.Pods[0].UID + "/" + path.Base(file(victim)), token},
			"the progress of another's capture": {path.Dir(path.Dir(path.Dir(file(victim)))) + "/progress", token},
		} {
			if status, body := result(t, "mallory", tc.path, tc.token); status != http.StatusUnauthorized && status != http.StatusNotFound {
				t.Errorf("%s: status %d, %d bytes", name, status, len(body))
			}
		}
		err := as(t, "mallory").Create(t.Context(), resultAccess(victim, token))
		wantForbidden(t, err, "resultaccesses")
		borrowed := resultAccess(victim, token)
		borrowed.Namespace = his
		if err := as(t, "mallory").Create(t.Context(), borrowed); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("a ResultAccess for a capture of another namespace: %v", err)
		}
	})
	t.Run("protected: paths", func(t *testing.T) {
		base := path.Dir(file(mine))
		for _, p := range []string{
			base + "/progress.json", base + "/..%2f..%2fetc%2fpasswd", base + "/%2e%2e/%2e%2e/%2fetc/passwd", base + "/../../../../etc/passwd", base + "//etc/passwd",
			base + "/%00", base + "/.hidden.pcapng", base + "/" + strings.Repeat("a", 4000) + ".pcapng", base + "/..%5c..%5cx.pcapng", base + "/%2fetc%2fpasswd.pcapng",
			base + "/..%2f..%2fetc%2fsonde-tls%2fserver.key", base + "/%252e%252e%252fserver.key", path.Dir(base) + "/..%2f" + victim.Status.Pods[0].UID + "/x.pcapng",
			"/v1/namespaces/" + his + "/packetcaptures/" + mine.Name + "%2f..%2f..%2f..%2f" + hers + "%2fpacketcaptures%2f" + victim.Name + "/progress",
			"/v1/namespaces/" + his + "%2f..%2f" + hers + "/packetcaptures/" + victim.Name + "/progress", "/metrics", "/debug/pprof/",
		} {
			if status, body := result(t, "mallory", p, token); status < 400 || status >= 500 {
				t.Errorf("%s: status %d, %.200q", p, status, body)
			}
		}
	})
	t.Run("protected: afterwards", func(t *testing.T) {
		var all sondev1.ResultAccessList
		if err := as(t, "mallory").List(t.Context(), &all, client.InNamespace(his)); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			deleteNow(t, &all.Items[i])
		}
		eventually(t, 10*time.Second, "the token of a deleted ResultAccess refused", func(context.Context) error {
			if status, _ := result(t, "mallory", file(mine), token); status != http.StatusUnauthorized {
				return fmt.Errorf("status %d", status)
			}
			return nil
		})
	})
}

func resultAccess(capture sondev1.Capture, token string) *sondev1.ResultAccess {
	sum := sha256.Sum256([]byte(token))
	of := sondev1.CaptureReference{Kind: sondev1.CaptureKind(capture.CaptureKind()), Name: capture.GetName()}
	return &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: capture.GetNamespace()},
		Spec:       sondev1.ResultAccessSpec{CaptureRef: of, TokenHash: hex.EncodeToString(sum[:])},
	}
}

// resultPath of a capture at the results endpoint.
func resultPath(capture sondev1.Capture) string {
	k, _ := kind.Of(capture.CaptureKind())
	return "/v1/namespaces/" + capture.GetNamespace() + "/" + k.Resource + "/" + capture.GetName()
}

// grant makes a token for a capture's results and waits until it works.
func grant(t *testing.T, c client.Client, capture sondev1.Capture) string {
	t.Helper()
	token := rand.Text() + rand.Text()
	if err := c.Create(t.Context(), resultAccess(capture, token)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the token known", func(context.Context) error {
		if status, body := result(t, "mallory", resultPath(capture)+"/files/x/x.pcapng", token); status != http.StatusNotFound {
			return fmt.Errorf("status %d: %s", status, body)
		}
		return nil
	})
	return token
}

// result asks the results endpoint through the API server for a path as it is written.
func result(t *testing.T, user, path, token string) (int, string) {
	t.Helper()
	c := configAs(user)
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = "//" + req.URL.Host + "/api/v1/namespaces/" + operatorNamespace + "/services/https:sonde-results:https/proxy" + path
	if token != "" {
		req.Header.Set("X-Sonde-Token", token)
	}
	resp, err := transport.RoundTrip(req)
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
