package results

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// Lengths of a token: long enough not to be guessed, short enough not to be a burden.
const (
	minToken = 20
	maxToken = 256
)

// maxMatches bounds how many ResultAccesses with the same hash are checked. There is more than one only if a user copied the
// hash of another, whom that must not lock out.
const maxMatches = 8

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures;traces;resultaccesses,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// session is an authorized request.
type session struct {
	kind    kind.Capture
	capture sondev1.Capture
	who     access.Requester
}

// authorize finds the capture that a token gives access to. It checks everything on each request: the stamps of the access
// and of the capture, the time, the target's namespace, and the requester's right.
func (h *Handler) authorize(ctx context.Context, header http.Header, k kind.Capture, namespace, name string) (session, error) {
	token := header.Get(TokenHeader)
	if len(token) < minToken || len(token) > maxToken {
		return session{}, failf(http.StatusUnauthorized, "no token: create a ResultAccess and send its token in the header %s, of %d to %d characters; \"kubectl sonde download NAME\" does this for you", TokenHeader, minToken, maxToken)
	}
	if !isName(namespace) || !isName(name) {
		return session{}, failf(http.StatusNotFound, "no such capture: the path must be /v1/namespaces/NAMESPACE/%s/NAME/...", k.Resource)
	}
	found, err := h.matches(ctx, token, k, namespace, name)
	if err != nil {
		return session{}, err
	}
	err = failf(http.StatusUnauthorized, "the token gives no access to %s %s/%s: create a new ResultAccess for it", k.Name, namespace, name)
	for _, ra := range found {
		var s session
		if s, err = h.admit(ctx, k, ra); err == nil {
			return s, nil
		}
	}
	return session{}, err
}

// matches returns the ResultAccesses of a capture that hold the hash of token. Each is compared in
// constant time, so that the time of an answer says nothing about a hash.
func (h *Handler) matches(ctx context.Context, token string, k kind.Capture, namespace, name string) ([]*sondev1.ResultAccess, error) {
	var list sondev1.ResultAccessList
	if err := h.Cache.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list resultaccesses: %w", err)
	}
	sum := sha256.Sum256([]byte(token))
	hash := []byte(hex.EncodeToString(sum[:]))
	var found []*sondev1.ResultAccess
	for i := range list.Items {
		ra := &list.Items[i]
		same := subtle.ConstantTimeCompare([]byte(ra.Spec.TokenHash), hash) == 1
		want := sondev1.CaptureReference{Kind: sondev1.CaptureKind(k.Name), Name: name}
		if same && ra.Spec.CaptureRef == want && len(found) < maxMatches {
			found = append(found, ra)
		}
	}
	return found, nil
}

// admit decides on one ResultAccess of a capture of a kind.
func (h *Handler) admit(ctx context.Context, k kind.Capture, ra *sondev1.ResultAccess) (session, error) {
	end := ra.CreationTimestamp.Add(time.Duration(ra.Spec.ExpirationSeconds) * time.Second)
	if !h.Clock.Now().Before(end) || !ra.DeletionTimestamp.IsZero() {
		return session{}, failf(http.StatusUnauthorized, "the ResultAccess has expired: create a new one")
	}
	claim, err := stamp.Verify(h.Key, ra.Namespace, stamp.KindResultAccess, &ra.Spec, ra.Annotations, ra.CreationTimestamp.Time)
	if err != nil {
		return session{}, failf(http.StatusForbidden, "%v", err)
	}
	capture, err := h.captureOf(ctx, k, ra, claim)
	if err != nil {
		return session{}, err
	}
	d, err := h.Reviews.ReviewPods(ctx, k.Verb, claim.Requester, capture.Common().TargetNamespace)
	if err != nil {
		return session{}, err
	}
	if !d.Allowed {
		return session{}, failf(http.StatusForbidden, "%s", d.Reason)
	}
	return session{kind: k, capture: capture, who: claim.Requester}, nil
}

// captureOf returns the capture that ra is for. It refuses a later one of the same name, and one whose target namespace has
// been deleted and created again.
func (h *Handler) captureOf(ctx context.Context, k kind.Capture, ra *sondev1.ResultAccess, claim stamp.Claim) (sondev1.Capture, error) {
	key := client.ObjectKey{Namespace: ra.Namespace, Name: ra.Spec.CaptureRef.Name}
	capture := k.New()
	err := h.Cache.Get(ctx, key, capture)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failf(http.StatusNotFound, "%[1]s %s not found: it was deleted, and its results with it: create a new %[1]s", k.Name, key)
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", strings.ToLower(k.Name), key, err)
	case !capture.GetDeletionTimestamp().IsZero():
		return nil, failf(http.StatusGone, "%[1]s %s is being deleted, and its results with it: create a new %[1]s", k.Name, key)
	case capture.GetCreationTimestamp().After(ra.CreationTimestamp.Time):
		return nil, failf(http.StatusUnauthorized, "the ResultAccess is older than %s %s: create a new one", k.Name, key)
	}
	own, err := stamp.VerifyCapture(h.Key, capture)
	if err != nil {
		return nil, failf(http.StatusForbidden, "%v", err)
	}
	if err := h.checkNamespace(ctx, k, capture.Common().TargetNamespace, own.TargetNamespaceUID, claim.TargetNamespaceUID); err != nil {
		return nil, err
	}
	return capture, nil
}

// checkNamespace refuses results from a deleted namespace: a new one of the same name may have another owner.
func (h *Handler) checkNamespace(ctx context.Context, k kind.Capture, name string, uids ...string) error {
	var ns corev1.Namespace
	err := h.Live.Get(ctx, client.ObjectKey{Name: name}, &ns)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get namespace %s: %w", name, err)
	}
	for _, uid := range uids {
		if err != nil || string(ns.UID) != uid {
			return failf(http.StatusGone, "namespace %s, the target's, has been deleted: create a new %s", name, k.Name)
		}
	}
	return nil
}
