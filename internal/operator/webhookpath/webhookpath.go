// Package webhookpath names the paths of the webhook server, which the webhook configurations carry as well.
package webhookpath

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/utils/clock"
)

// Paths at which the webhook server answers, each followed by a segment of Secret. Gate is for Pods in general,
// GateRequired for Pods that must not start untraced, Sidecar for Pods that name a FluentPVC.
const (
	PacketCapture = "/mutate-monitoring-openshift-tpg-v1alpha1-packetcapture"
	Trace         = "/mutate-monitoring-openshift-tpg-v1alpha1-trace"
	ResultAccess  = "/mutate-monitoring-openshift-tpg-v1alpha1-resultaccess"
	Intercept     = "/mutate-monitoring-openshift-tpg-v1alpha1-interceptrequest"
	Collector     = "/mutate-monitoring-openshift-tpg-v1alpha1-collector"
	Gate          = "/mutate-v1-pod-gate"
	GateRequired  = "/mutate-v1-pod-gate-required"
	FluentPVC     = "/mutate-monitoring-openshift-tpg-v1alpha1-fluentpvc"
	Sidecar       = "/mutate-v1-pod-fluentpvc"
)

// MaxMetadata is how many labels, owners and finalizers each an object of Sonde's kinds may have. The webhooks refuse more,
// and their configurations send them the updates that have more.
const MaxMetadata = 64

const (
	// Period is how long the configurations carry the same segment. One that has leaked is worthless after at most Period
	// and Overlap.
	Period = time.Hour
	// Overlap is how long before and after its period a segment is accepted. Within it the leader writes the new one, the API
	// servers read it, and the clocks of the replicas may differ.
	Overlap = 5 * time.Minute
)

// Secret makes the last segment of every webhook path, derived from the key of the stamps and the time. So all replicas agree
// on it, and no state is stored. The API server does not authenticate to a webhook, and every Pod of the cluster can reach
// one. Without the segment a Pod could send an AdmissionReview, get the stamp of any requester, and find out which objects
// other namespaces have. It is only a second wall: users who can read webhook configurations know the segment, and error
// messages show it while the webhook is unreachable. That is why it changes.
type Secret struct {
	key   []byte
	clock clock.PassiveClock
}

// New returns the segments that are derived from key.
func New(key []byte, clk clock.PassiveClock) Secret { return Secret{key, clk} }

// Current returns the segment that the configurations carry now, and the time until it changes.
func (s Secret) Current() (segment string, left time.Duration) {
	now := s.clock.Now()
	return s.at(now), now.Truncate(Period).Add(Period).Sub(now)
}

// Accepts reports whether the server answers at url, which should be path and a segment. It compares in constant time, so
// that the time of an answer reveals nothing about the secret.
func (s Secret) Accepts(path, url string) bool {
	now := s.clock.Now()
	before := hmac.Equal([]byte(url), []byte(path+s.at(now.Add(-Overlap))))
	after := hmac.Equal([]byte(url), []byte(path+s.at(now.Add(Overlap))))
	return before || after
}

func (s Secret) at(t time.Time) string {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte("sonde-webhook-path-v2 " + t.Truncate(Period).UTC().Format(time.RFC3339)))
	return "/" + hex.EncodeToString(h.Sum(nil)[:16])
}
