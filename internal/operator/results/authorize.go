package results

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// Lengths of a token: long enough not to be guessed, short enough not to be a burden.
const (
	minToken = 20
	maxToken = 256
)

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures;traces;resultaccesses,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// session is an authorized request.
type session struct {
	kind    kind.Capture
	capture sondev1.Capture
	access  *sondev1.ResultAccess
	who     access.Requester
	// namespaceUID of the target, as the stamps have it.
	namespaceUID string
	// onNode is set once the request has needed the right on nodes, so that it is reviewed again while the answer lasts.
	onNode *atomic.Pointer[string]
}

// authorize finds the capture that a token gives access to. It checks everything on each request: the stamps of the access
// and of the capture, the time, the target's namespace, and the requester's right.
func (h *Handler) authorize(ctx context.Context, header http.Header, k kind.Capture, namespace, name string) (session, error) {
	s, err := h.identify(ctx, header, k, namespace, name)
	if err != nil {
		return session{}, err
	}
	return s, h.admit(ctx, s)
}

// identify finds the ResultAccess of a token and its capture. It reads nothing but the cache, by index, so a request with
// an invalid token is refused at the price of a hash and counts against no one.
func (h *Handler) identify(ctx context.Context, header http.Header, k kind.Capture, namespace, name string) (session, error) {
	token := header.Get(TokenHeader)
	if len(token) < minToken || len(token) > maxToken {
		return session{}, failf(http.StatusUnauthorized, "no token: create a ResultAccess and send its token in the header %s, of %d to %d characters; \"kubectl sonde download NAME\" does this for you", TokenHeader, minToken, maxToken)
	}
	if !isName(namespace) || !isName(name) {
		return session{}, failf(http.StatusNotFound, "no such capture: the path must be /v1/namespaces/NAMESPACE/%s/NAME/...", k.Resource)
	}
	ref := sondev1.CaptureReference{Kind: sondev1.CaptureKind(k.Name), Name: name}
	found, err := h.matches(ctx, token, header.Get(AccessHeader), namespace, ref)
	if err != nil {
		return session{}, err
	}
	err = failf(http.StatusUnauthorized, "the token gives no access to %s %s/%s: create a new ResultAccess for it", k.Name, namespace, name)
	for i := range found {
		var claim stamp.Claim
		if claim, err = h.valid(&found[i]); err == nil {
			return h.sessionOf(ctx, k, &found[i], claim)
		}
	}
	return session{}, err
}

// matches returns the ResultAccesses of a capture that hold the hash of token, the oldest first. The webhook refuses a
// hash that exists, so there is more than one only if a user copied another's through a replica whose cache lagged. A
// client that names the UID of its ResultAccess is not affected by copies. The others get the oldest.
func (h *Handler) matches(ctx context.Context, token, uid, namespace string, ref sondev1.CaptureReference) ([]sondev1.ResultAccess, error) {
	sum := sha256.Sum256([]byte(token))
	hash := hex.EncodeToString(sum[:])
	var list sondev1.ResultAccessList
	if err := h.Cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{target.IndexTokenHash: hash}); err != nil {
		return nil, fmt.Errorf("list resultaccesses: %w", err)
	}
	found := slices.DeleteFunc(list.Items, func(ra sondev1.ResultAccess) bool {
		same := subtle.ConstantTimeCompare([]byte(ra.Spec.TokenHash), []byte(hash)) == 1
		return !same || ra.Spec.CaptureRef != ref || uid != "" && string(ra.UID) != uid
	})
	slices.SortFunc(found, func(a, b sondev1.ResultAccess) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return found, nil
}

// valid returns the claim of a ResultAccess that the webhook has admitted and that has not expired.
func (h *Handler) valid(ra *sondev1.ResultAccess) (stamp.Claim, error) {
	end := ra.CreationTimestamp.Add(time.Duration(ra.Spec.ExpirationSeconds) * time.Second)
	if !h.Clock.Now().Before(end) || !ra.DeletionTimestamp.IsZero() {
		return stamp.Claim{}, failf(http.StatusUnauthorized, "the ResultAccess has expired: create a new one")
	}
	claim, err := stamp.Verify(h.Key, ra.Namespace, stamp.KindResultAccess, &ra.Spec, ra.Annotations, ra.CreationTimestamp.Time)
	if err != nil {
		return stamp.Claim{}, failf(http.StatusForbidden, "%v", err)
	}
	return claim, nil
}

// sessionOf finds the capture that ra is for. It refuses a later one of the same name.
func (h *Handler) sessionOf(ctx context.Context, k kind.Capture, ra *sondev1.ResultAccess, claim stamp.Claim) (session, error) {
	key := client.ObjectKey{Namespace: ra.Namespace, Name: ra.Spec.CaptureRef.Name}
	capture := k.New()
	err := h.Cache.Get(ctx, key, capture)
	switch {
	case apierrors.IsNotFound(err):
		return session{}, failf(http.StatusNotFound, "%[1]s %s not found: it was deleted, and its results with it: create a new %[1]s", k.Name, key)
	case err != nil:
		return session{}, fmt.Errorf("get %s %s: %w", strings.ToLower(k.Name), key, err)
	case !capture.GetDeletionTimestamp().IsZero():
		return session{}, failf(http.StatusGone, "%[1]s %s is being deleted, and its results with it: create a new %[1]s", k.Name, key)
	case capture.GetCreationTimestamp().After(ra.CreationTimestamp.Time):
		return session{}, failf(http.StatusUnauthorized, "the ResultAccess is older than %s %s: create a new one", k.Name, key)
	}
	own, err := stamp.VerifyCapture(h.Key, capture)
	if err != nil {
		return session{}, failf(http.StatusForbidden, "%v", err)
	}
	if own.TargetNamespaceUID != claim.TargetNamespaceUID {
		return session{}, namespaceGone(k, capture)
	}
	return session{kind: k, capture: capture, access: ra, who: claim.Requester, namespaceUID: claim.TargetNamespaceUID, onNode: new(atomic.Pointer[string])}, nil
}

// admit refuses results from a deleted namespace, because a new one of the same name may have another owner, and to a
// requester who has lost the right.
func (h *Handler) admit(ctx context.Context, s session) error {
	in := s.capture.Common().TargetNamespace
	var ns corev1.Namespace
	err := h.Live.Get(ctx, client.ObjectKey{Name: in}, &ns)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get namespace %s: %w", in, err)
	}
	if err != nil || string(ns.UID) != s.namespaceUID {
		return namespaceGone(s.kind, s.capture)
	}
	d, err := h.Reviews.ReviewPods(ctx, s.kind.Verb, s.who, in)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return failf(http.StatusForbidden, "%s", d.Reason)
	}
	return nil
}

func namespaceGone(k kind.Capture, capture sondev1.Capture) error {
	return failf(http.StatusGone, "namespace %s, the target's, has been deleted: create a new %s", capture.Common().TargetNamespace, k.Name)
}
