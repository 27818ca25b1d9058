package stamp

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/naming"
)

// KeyBytes is the length of the key: as long as the HMAC's output.
const KeyBytes = 32

// The Secret, in the operator's namespace, that holds the key.
const (
	SecretName = "sonde-stamp-key"
	secretKey  = "key"
)

// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=secrets,verbs=get;create

// EnsureKey returns the stamp key, and creates it if there is none. Replicas may race: the API server lets one of them
// create the Secret, and all read it back. c must read live, not from a cache.
//
// A Secret without a valid key is an error, and EnsureKey does not repair it: a new key makes every existing stamp
// worthless, which an admin has to decide.
func EnsureKey(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	name := client.ObjectKey{Namespace: namespace, Name: SecretName}
	var s corev1.Secret
	err := c.Get(ctx, name, &s)
	if apierrors.IsNotFound(err) {
		if err := createKey(ctx, c, name); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create Secret %s: %w", name, err)
		}
		// Read it back even after creating it: the stored key counts, whichever replica made it.
		err = c.Get(ctx, name, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	key := s.Data[secretKey]
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("the Secret %s holds %d bytes under %q, want %d: restore it; or delete it, restart all replicas of the manager, and have captures, intercepts, FluentPVCs and Collectors created again",
			name, len(key), secretKey, KeyBytes)
	}
	return key, nil
}

func createKey(ctx context.Context, c client.Client, name client.ObjectKey) error {
	key := make([]byte, KeyBytes)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the program if there is no randomness
	yes := true
	return c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name.Name, Namespace: name.Namespace,
			Labels: naming.Own(),
		},
		Immutable: &yes, // a key edited by accident would refuse every capture
		Type:      corev1.SecretTypeOpaque,
		Data:      map[string][]byte{secretKey: key},
	})
}
