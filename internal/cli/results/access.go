package results

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	// accessSeconds is how long a ResultAccess is valid. renewAfter leaves time to use the last token.
	accessSeconds = 900
	renewAfter    = 10 * time.Minute
)

// Access creates ResultAccesses for one capture as they are needed, and deletes them at the end.
type Access struct {
	client  client.Client
	clock   clock.PassiveClock
	capture v1alpha1.Capture

	mu        sync.Mutex
	token     Token // its Age is not kept
	createdAt time.Time
	objects   []*v1alpha1.ResultAccess
}

// NewAccess returns an Access to capture, which was read from the API server: its UID is set.
func NewAccess(c client.Client, clk clock.PassiveClock, capture v1alpha1.Capture) *Access {
	return &Access{client: c, clock: clk, capture: capture}
}

// Token returns a token. The manager accepts it once it has observed the ResultAccess. The error wraps the API server's.
func (a *Access) Token(ctx context.Context) (Token, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token.Text == "" || a.clock.Since(a.createdAt) >= renewAfter {
		token, hash := newToken()
		object := a.build(hash)
		if err := a.client.Create(ctx, object); err != nil {
			return Token{}, a.refused(err)
		}
		a.token, a.createdAt = Token{Text: token, Access: object.UID}, a.clock.Now()
		a.objects = append(a.objects, object)
	}
	current := a.token
	current.Age = a.clock.Since(a.createdAt)
	return current, nil
}

// refused adds to a refusal by RBAC what to ask for. A refusal by the webhook says that itself.
func (a *Access) refused(err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create ") {
		return fmt.Errorf("create a ResultAccess: %w: ask an admin for the ClusterRole sonde-edit in namespace %s", err, a.capture.GetNamespace())
	}
	return fmt.Errorf("create a ResultAccess: %w", err)
}

// Invalidate makes Token create a new token, because this one was refused.
func (a *Access) Invalidate(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token.Text == token {
		a.token = Token{}
	}
}

// Close deletes the ResultAccesses. The manager deletes those that remain when they expire.
func (a *Access) Close(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed error
	for _, o := range a.objects {
		if err := client.IgnoreNotFound(a.client.Delete(ctx, o)); err != nil {
			failed = fmt.Errorf("delete ResultAccess %s: %w", o.Name, err)
		}
	}
	a.objects, a.token = nil, Token{}
	return failed
}

func (a *Access) build(hash string) *v1alpha1.ResultAccess {
	return &v1alpha1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    a.capture.GetNamespace(),
			GenerateName: a.capture.GetName() + "-",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: a.capture.KindName(),
				Name: a.capture.GetName(), UID: a.capture.GetUID(),
			}},
		},
		Spec: v1alpha1.ResultAccessSpec{
			CaptureRef:        v1alpha1.CaptureReference{Kind: v1alpha1.CaptureKind(a.capture.KindName()), Name: a.capture.GetName()},
			TokenHash:         hash,
			ExpirationSeconds: accessSeconds,
		},
	}
}

// newToken returns 256 random bits in hex, and the hex SHA-256 of that text.
func newToken() (token, hash string) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program if there is no randomness
	token = hex.EncodeToString(b)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}
