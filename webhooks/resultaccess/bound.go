package resultaccess

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Bounds of the ResultAccesses that exist at once. The plugin has one or two for each command that runs, and they expire.
// The namespace is the target's: only there does a requester need a right, and several tenants may share the namespace of
// the capture.
const (
	maxPerCapture   = 64
	maxPerNamespace = 256
	// maxKept bounds those that exist for a target's namespace. The manager deletes expired ones, but a finalizer may keep any number, and
	// the caches of both replicas have them all.
	maxKept = 4 * maxPerNamespace
)

// recentFor is how long an admitted ResultAccess counts before the cache has it. A cache lags by much less.
const recentFor = 5 * time.Second

// recent are the ResultAccesses that this replica has admitted a moment ago, so that requests at the same time do not
// pass a bound together. Each replica has its own. So with two replicas there may be up to twice as many as a bound says,
// until the caches have caught up. The zero value is ready to use.
type recent struct {
	mu     sync.Mutex
	byHash map[string]grant
}

// grant is a ResultAccess that was admitted.
type grant struct {
	requester string
	at        time.Time
	to        client.ObjectKey // its namespace, and its capture as target.AccessTo
	targetUID string
	times     int
}

// maxTimes is how often the API server asks about one request: again if a later webhook has changed the object.
const maxTimes = 2

// advice for a user who has too many.
const advice = "delete those that are not needed (kubectl delete resultaccesses NAME), or wait until some expire"

// bound refuses a hash that exists, because a copy of it could pass for the original, and a ResultAccess above the bounds.
// It runs after the requester's rights are proven.
func (h *Handler) bound(ctx context.Context, req webhook.AdmissionRequest, s *sondev1.ResultAccessSpec, targetUID string) error {
	own := grant{
		requester: req.UserInfo.Username, at: h.Clock.Now(), targetUID: targetUID,
		to: client.ObjectKey{Namespace: req.Namespace, Name: target.AccessTo(s.CaptureRef)},
	}
	h.recent.mu.Lock()
	defer h.recent.mu.Unlock()
	h.recent.forget(own.at)
	same, _, err := h.existing(ctx, client.MatchingFields{target.IndexTokenHash: s.TokenHash})
	if err != nil {
		return err
	}
	before, again := h.recent.byHash[s.TokenHash]
	own.times = before.times + 1
	if len(same) > 0 || again && (before.requester != own.requester || before.to != own.to || own.times > maxTimes) {
		return admission.Invalid("tokenHash is in use by another ResultAccess: make a new token for each; \"kubectl sonde download NAME\" does this for you")
	}
	if !again {
		if err := h.count(ctx, own, s); err != nil {
			return err
		}
	}
	if req.DryRun == nil || !*req.DryRun {
		h.recent.byHash[s.TokenHash] = own
	}
	return nil
}

// count refuses one more ResultAccess to a capture, or for a target's namespace, that has too many.
func (h *Handler) count(ctx context.Context, own grant, s *sondev1.ResultAccessSpec) error {
	ofCapture, _, err := h.existing(ctx, client.InNamespace(own.to.Namespace), client.MatchingFields{target.IndexAccessTo: own.to.Name})
	if err != nil {
		return err
	}
	ofTarget, all, err := h.existing(ctx, client.MatchingFields{target.IndexAccessTarget: own.targetUID})
	if err != nil {
		return err
	}
	if all >= maxKept {
		return admission.Forbidden("there are %d ResultAccesses for captures of this target's namespace, expired ones included, the most for one: "+
			"wait until the operator has deleted the expired ones, and remove the finalizers of those that stay", all)
	}
	for hash, g := range h.recent.byHash {
		if g.to == own.to {
			ofCapture[hash] = max(ofCapture[hash], g.times)
		}
		if g.targetUID == own.targetUID {
			ofTarget[hash] = max(ofTarget[hash], g.times)
		}
	}
	if n := sum(ofCapture); n >= maxPerCapture {
		return admission.Forbidden("%s %s/%s has %d ResultAccesses, the most for one: %s", s.CaptureRef.Kind, own.to.Namespace, s.CaptureRef.Name, n, advice)
	}
	if n := sum(ofTarget); n >= maxPerNamespace {
		return admission.Forbidden("there are %d ResultAccesses for captures of this target's namespace, the most for one: %s", n, advice)
	}
	return nil
}

// forget drops what the cache has by now.
func (r *recent) forget(now time.Time) {
	maps.DeleteFunc(r.byHash, func(_ string, g grant) bool { return now.Sub(g.at) >= recentFor })
	if r.byHash == nil {
		r.byHash = map[string]grant{}
	}
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// existing counts the ResultAccesses that opts select: by their hash those that have not expired, and all of them. Expired ones are
// deleted soon, and must not lock anyone out meanwhile.
func (h *Handler) existing(ctx context.Context, opts ...client.ListOption) (counts map[string]int, all int, err error) {
	var list sondev1.ResultAccessList
	if err := h.Cache.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, 0, fmt.Errorf("list resultaccesses: %w", err)
	}
	counts = map[string]int{}
	for i := range list.Items {
		ra := &list.Items[i]
		end := ra.CreationTimestamp.Add(time.Duration(ra.Spec.ExpirationSeconds) * time.Second)
		if h.Clock.Now().Before(end) {
			counts[ra.Spec.TokenHash]++
		}
	}
	return counts, len(list.Items), nil
}
