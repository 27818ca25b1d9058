//go:build e2e

package security

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// A Pod asks for the metrics with made-up tokens, as fast as it can. The manager asks the API server about a few of them,
// and a scraper gets the metrics. The control is the number of requests: without the bound each makes a TokenReview.
func TestAttackMetricsTokens(t *testing.T) {
	cluster.ManagerFlag(t, "--metrics-bind-address=:8443")
	ns := cluster.Namespace(t, nil)
	header := http.Header{"Authorization": {"Bearer " + cluster.MetricsReader(t, ns)}}
	scraper := cluster.Pod(t, ns, "prometheus", cluster.ShellSpec())
	var addresses []string
	for _, p := range cluster.ManagerPods(t) {
		addresses = append(addresses, net.JoinHostPort(p.Status.PodIP, strconv.Itoa(cluster.MetricsPort)))
	}
	before, begun := tokenReviews(t), time.Now()
	attacker := cluster.Pod(t, ns, "mallory", cluster.PodSpec(append([]string{"guess"}, addresses...)...))
	var answers, refused int
	cluster.Eventually(t, time.Minute, "control: a flood", func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, attacker)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if _, err := fmt.Sscanf(lines[len(lines)-1], "answers %d refused %d", &answers, &refused); err != nil || answers < 5000 {
			return fmt.Errorf("%d answers, %w", answers, err)
		}
		return nil
	})
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	var longest time.Duration
	for range 5 { // the token is known from the second on
		for _, address := range addresses {
			start := time.Now()
			if status, body, err := fromPod(t, scraper, address, c, http.MethodGet, "/metrics", header, nil); status != http.StatusOK || !strings.Contains(string(body), "sonde_") {
				t.Errorf("a scraper beside the flood: status %d, %v", status, err)
			}
			longest = max(longest, time.Since(start))
		}
	}
	made, lasted := tokenReviews(t)-before, time.Since(begun)
	t.Logf("%d answers, %d of them 429; %d TokenReviews in %v; a scrape took at most %v", answers, refused, made, lasted.Round(time.Second), longest.Round(time.Millisecond))
	// 10 at once and one a second for each replica, and those of the cluster itself.
	if most := len(addresses)*(10+int(lasted.Seconds())) + 50; made > most {
		t.Errorf("%d TokenReviews in %v, want at most %d", made, lasted, most)
	}
	notRestarted(t)
}

// tokenReviews returns how many TokenReviews the API server has answered.
func tokenReviews(t *testing.T) int {
	t.Helper()
	text, err := clientset(t, cluster.Config).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="tokenreviews"`) {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += int(n)
		}
	}
	return sum
}
