package results

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	// accessSeconds is how long a ResultAccess lasts; renewAfter leaves time to use the last token.
	accessSeconds = 900
	renewAfter    = 10 * time.Minute
)

// Access makes ResultAccesses for one capture as they are needed, and takes them away at the end.
type Access struct {
	client  client.Client
	clock   clock.PassiveClock
	capture v1alpha1.Capture

	mu      sync.Mutex
	token   string
	made    time.Time
	objects []*v1alpha1.ResultAccess
}

// NewAccess returns an Access to capture, which must have come from the API server.
func NewAccess(c client.Client, clk clock.PassiveClock, capture v1alpha1.Capture) *Access {
	return &Access{client: c, clock: clk, capture: capture}
}

// Token returns a token that the manager accepts, or soon will, and its age. The error is the API
// server's, unwrapped where a webhook refused.
func (a *Access) Token(ctx context.Context) (token string, age time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != "" && a.clock.Since(a.made) < renewAfter {
		return a.token, a.clock.Since(a.made), nil
	}
	token, hash := newToken()
	object := a.build(hash)
	if err := a.client.Create(ctx, object); err != nil {
		return "", 0, fmt.Errorf("ask for the results: %w", err)
	}
	a.token, a.made = token, a.clock.Now()
	a.objects = append(a.objects, object)
	return a.token, 0, nil
}

// Forget makes the next Token a new one: this one was refused.
func (a *Access) Forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		a.token = ""
	}
}

// Close deletes what Token made. What it cannot delete, the manager does when it has expired.
func (a *Access) Close(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed error
	for _, o := range a.objects {
		if err := client.IgnoreNotFound(a.client.Delete(ctx, o)); err != nil {
			failed = fmt.Errorf("delete ResultAccess %s: %w", o.Name, err)
		}
	}
	a.objects, a.token = nil, ""
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
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program where there is no randomness
	token = hex.EncodeToString(b)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}
