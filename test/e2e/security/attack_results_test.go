//go:build e2e

package security

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A token opens the files of one capture, and a path names one of them. No other token, no guess, and no detour in the
// path leads anywhere else.
func TestAttackResults(t *testing.T) {
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	for _, ns := range []string{victimNS, attackerNS} {
		cluster.Deployment(t, ns, "sink", 1, "sink")
	}
	cluster.Bind(t, attackerNS, "mallory", "admin")
	victim := cluster.Capture(t, cluster.Admin, victimNS, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	mine := cluster.Capture(t, cluster.As(t, "mallory"), attackerNS, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	second := cluster.Capture(t, cluster.As(t, "mallory"), attackerNS, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	for _, pc := range []*sondev1.PacketCapture{victim, mine, second} {
		cluster.Stop(t, pc)
	}
	token := cluster.GrantResults(t, cluster.As(t, "mallory"), mine)
	hersToken := cluster.GrantResults(t, cluster.Admin, victim)
	file := func(pc *sondev1.PacketCapture) string {
		return "/v1/namespaces/" + pc.Namespace + "/packetcaptures/" + pc.Name + "/files/" + pc.Status.Pods[0].UID + "/" + pc.Status.Pods[0].Files[0].Name
	}
	t.Run("control: the right token", func(t *testing.T) {
		for pc, token := range map[*sondev1.PacketCapture]string{mine: token, victim: hersToken} {
			if status, body := cluster.GetResult(t, "mallory", file(pc), token); status != http.StatusOK || !strings.HasPrefix(body, "\x0a\x0d\x0d\x0a") {
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
			if status, body := cluster.GetResult(t, "mallory", tc.path, tc.token); status != http.StatusUnauthorized && status != http.StatusNotFound {
				t.Errorf("%s: got status %d, %d bytes, want a refusal", name, status, len(body))
			}
		}
		err := cluster.As(t, "mallory").Create(t.Context(), cluster.ResultAccess(victim, token))
		wantForbidden(t, err, "resultaccesses")
		borrowed := cluster.ResultAccess(victim, token)
		borrowed.Namespace = attackerNS
		if err := cluster.As(t, "mallory").Create(t.Context(), borrowed); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("a ResultAccess for a capture of another namespace: got %v, want a refusal", err)
		}
	})
	t.Run("protected: paths", func(t *testing.T) {
		base := path.Dir(file(mine))
		for _, p := range []string{
			base + "/progress.json", base + "/..%2f..%2fetc%2fpasswd", base + "/%2e%2e/%2e%2e/%2fetc/passwd", base + "/../../../../etc/passwd", base + "//etc/passwd",
			base + "/%00", base + "/.hidden.pcapng", base + "/" + strings.Repeat("a", 4000) + ".pcapng", base + "/..%5c..%5cx.pcapng", base + "/%2fetc%2fpasswd.pcapng",
			base + "/..%2f..%2fetc%2fsonde-tls%2fserver.key", base + "/%252e%252e%252fserver.key", path.Dir(base) + "/..%2f" + victim.Status.Pods[0].UID + "/x.pcapng",
			"/v1/namespaces/" + attackerNS + "/packetcaptures/" + mine.Name + "%2f..%2f..%2f..%2f" + victimNS + "%2fpacketcaptures%2f" + victim.Name + "/progress",
			"/v1/namespaces/" + attackerNS + "%2f..%2f" + victimNS + "/packetcaptures/" + victim.Name + "/progress", "/metrics", "/debug/pprof/",
		} {
			if status, body := cluster.GetResult(t, "mallory", p, token); status < 400 || status >= 500 {
				t.Errorf("%s: got status %d, %.200q, want a refusal", p, status, body)
			}
		}
	})
	t.Run("protected: afterwards", func(t *testing.T) {
		var all sondev1.ResultAccessList
		if err := cluster.As(t, "mallory").List(t.Context(), &all, client.InNamespace(attackerNS)); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			cluster.DeleteNow(t, &all.Items[i])
		}
		cluster.Eventually(t, 10*time.Second, "the token of a deleted ResultAccess refused", func(context.Context) error {
			if status, _ := cluster.GetResult(t, "mallory", file(mine), token); status != http.StatusUnauthorized {
				return fmt.Errorf("got status %d", status)
			}
			return nil
		})
	})
}
