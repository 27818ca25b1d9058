package intercept

import (
	"bytes"
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestStowawayAfterAKeyIsReplaced: a Secret that the manager cannot read any more stops no pass. Stowaway is replaced where it is wanted, and
// removed elsewhere. The manager's key is in no Secret as it is.
func TestStowawayAfterAKeyIsReplaced(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "sonde-system", Name: tunnel.Name}
	withUID := interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		o.SetUID("uid")
		return c.Create(ctx, o, opts...)
	}}
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithInterceptorFuncs(withUID).Build(), Options: agentjob.Options{Namespace: meta.Namespace}, Stowaway: &Stowaway{}, Key: bytes.Repeat([]byte("a"), 32),
	}
	r.Live = r.Client
	secret := func() (s corev1.Secret) {
		if err := client.IgnoreNotFound(r.Get(t.Context(), client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}, &s)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	observed := func() *observation {
		o := &observation{}
		if err := r.observeStowawayKeys(t.Context(), o, client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}); err != nil {
			t.Fatal(err)
		}
		return o
	}
	if err := r.createStowawaySecret(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if o := observed(); !o.stowaway.secret || o.stowaway.unreadable || o.stowaway.managerKey == "" {
		t.Fatalf("%+v", o.stowaway)
	}
	if _, err := tunnel.ParseIdentity(secret().Data[agentjob.SecretStowawayManager]); err == nil {
		t.Error("the Secret has the manager's key")
	}

	r.Key = bytes.Repeat([]byte("b"), 32)
	old, o := secret(), observed()
	if !o.stowaway.unreadable || o.stowaway.secret {
		t.Errorf("with another key: %+v", o.stowaway)
	}
	if _, err := sealed.Open(r.Key, meta.Name, agentjob.SecretStowawayManager, old.Data[agentjob.SecretStowawayManager]); !errors.Is(err, sealed.ErrOtherKey) {
		t.Errorf("error %v", err)
	}
	if p := planFor(o, r.Limits, noon); !p.removeStowaway {
		t.Error("without InterceptRequests, Stowaway stays")
	}
	if err := r.ensureStowaway(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if now := secret(); now.UID != "" || now.Name != "" {
		t.Error("the old Secret is still there")
	}
	if err := r.ensureStowaway(t.Context(), observed()); err != nil {
		t.Fatal(err)
	}
	if o := observed(); !o.stowaway.secret {
		t.Errorf("there is no new Secret: %+v", o.stowaway)
	}
}
