// Package webhookpath names the paths of the webhook server, which the webhook configurations carry as well.
package webhookpath

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Paths at which the webhook server answers, each followed by Secret. Gate is for Pods in general, GateRequired for
// Pods that must not start untraced.
const (
	PacketCapture = "/mutate-monitoring-openshift-tpg-v1alpha1-packetcapture"
	Trace         = "/mutate-monitoring-openshift-tpg-v1alpha1-trace"
	ResultAccess  = "/mutate-monitoring-openshift-tpg-v1alpha1-resultaccess"
	Gate          = "/mutate-v1-pod-gate"
	GateRequired  = "/mutate-v1-pod-gate-required"
)

// MaxMetadata is how many labels, owners and finalizers each an object of Sonde's kinds may have. The webhooks refuse more,
// and their configurations send them the updates that have more.
const MaxMetadata = 64

// Secret returns the last segment of every webhook path, derived from the key of the stamps. The API server does not
// authenticate to a webhook, and every Pod of the cluster can reach one. Without the segment a Pod could send an
// AdmissionReview, get the stamp of any requester, and find out which objects other namespaces have. It is only a second
// wall: users who can read webhook configurations know the segment, and error messages show it while the webhook is
// unreachable.
func Secret(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("sonde-webhook-path-v1"))
	return "/" + hex.EncodeToString(h.Sum(nil)[:16])
}
