package stamp

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func keySecret(data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: SecretName},
		Data:       map[string][]byte{secretKey: data},
	}
}

func TestEnsureKeyMakesOneKeyForAll(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	first, err := EnsureKey(t.Context(), c, "sonde-system")
	if err != nil || len(first) != KeyBytes {
		t.Fatalf("got %d bytes, %v", len(first), err)
	}
	again, err := EnsureKey(t.Context(), c, "sonde-system")
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("a second key (%v):\n%s", err, diff)
	}
	other, err := EnsureKey(t.Context(), fake.NewClientBuilder().Build(), "sonde-system")
	if err != nil || cmp.Equal(first, other) {
		t.Errorf("two installs share a key (%v)", err)
	}
}

func TestEnsureKeyTakesTheKeyOfWhoeverWasFirst(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, keySecret(testKey)); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...) // too late: AlreadyExists
		},
	}).Build()
	got, err := EnsureKey(t.Context(), c, "sonde-system")
	if diff := cmp.Diff(testKey, got); err != nil || diff != "" {
		t.Errorf("not the first one's key (%v):\n%s", err, diff)
	}
}

func TestEnsureKeyFails(t *testing.T) {
	broken := errors.New("no right to do that")
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		funcs  interceptor.Funcs
		want   string
	}{
		"a Secret without a key":   {secret: keySecret(nil), want: "restart all replicas of the manager, and have captures"},
		"a Secret with half a key": {secret: keySecret(testKey[:16]), want: "holds 16 bytes"},
		"no right to get": {funcs: interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return broken
			},
		}, want: "get Secret sonde-system/sonde-stamp-key: no right"},
		"no right to create": {funcs: interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return broken },
		}, want: "create Secret sonde-system/sonde-stamp-key: no right"},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder().WithInterceptorFuncs(tc.funcs)
			if tc.secret != nil {
				b = b.WithObjects(tc.secret)
			}
			if _, err := EnsureKey(t.Context(), b.Build(), "sonde-system"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
