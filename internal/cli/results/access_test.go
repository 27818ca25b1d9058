package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func newAccess(t *testing.T, funcs interceptor.Funcs) (*Access, client.Client, *testingclock.FakePassiveClock) {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(funcs).Build()
	clock := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	return NewAccess(c, clock, named(&v1alpha1.PacketCapture{})), c, clock
}

func list(t *testing.T, c client.Client) []v1alpha1.ResultAccess {
	t.Helper()
	var l v1alpha1.ResultAccessList
	if err := c.List(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func TestAccess(t *testing.T) {
	created := 0
	a, c, clock := newAccess(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			created++
			o.SetUID(types.UID(fmt.Sprint("access-", created)))
			return c.Create(ctx, o, opts...)
		},
	})
	token, err := a.Token(t.Context())
	if err != nil || token.Age != 0 || token.Access != "access-1" {
		t.Fatalf("age %v, of %s, %v", token.Age, token.Access, err)
	}
	objects := list(t, c)
	if len(objects) != 1 {
		t.Fatalf("%d ResultAccesses, want 1", len(objects))
	}
	sum := sha256.Sum256([]byte(token.Text))
	if got := objects[0].Spec.TokenHash; got != hex.EncodeToString(sum[:]) {
		t.Errorf("tokenHash %s is not the SHA-256 of the token", got)
	}
	if ref := objects[0].Spec.CaptureRef; ref.Kind != "PacketCapture" || ref.Name != "web" || objects[0].Namespace != "shop" {
		t.Errorf("made for %+v in %s", ref, objects[0].Namespace)
	}
	if owners := objects[0].OwnerReferences; len(owners) != 1 || owners[0].UID != "uid-1" {
		t.Errorf("owners %+v: the garbage collector would not take it with the capture", owners)
	}

	clock.SetTime(clock.Now().Add(time.Minute))
	if again, err := a.Token(t.Context()); err != nil || again.Text != token.Text || again.Age != time.Minute {
		t.Errorf("a minute later: same %t, age %v, %v", again.Text == token.Text, again.Age, err)
	}
	clock.SetTime(clock.Now().Add(renewAfter))
	second, err := a.Token(t.Context())
	if err != nil || second.Text == token.Text || second.Age != 0 {
		t.Errorf("before it expires: same %t, age %v, %v", second.Text == token.Text, second.Age, err)
	}
	a.Invalidate(token.Text) // an old token, which has no effect
	if again, _ := a.Token(t.Context()); again.Text != second.Text {
		t.Error("forgetting an old token gave a new one")
	}
	a.Invalidate(second.Text)
	if third, _ := a.Token(t.Context()); third.Text == second.Text {
		t.Error("a token that was refused is used again")
	}

	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := list(t, c); len(left) != 0 {
		t.Errorf("%d ResultAccesses are left", len(left))
	}
}

// The ResultAccess names the kind of the capture.
func TestAccessToATrace(t *testing.T) {
	_, c, clock := newAccess(t, interceptor.Funcs{})
	if _, err := NewAccess(c, clock, named(&v1alpha1.Trace{})).Token(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects := list(t, c)
	if len(objects) != 1 || objects[0].Spec.CaptureRef != (v1alpha1.CaptureReference{Kind: "Trace", Name: "web"}) || objects[0].OwnerReferences[0].Kind != "Trace" {
		t.Errorf("made %+v", objects)
	}
}

func TestAccessRefused(t *testing.T) {
	denied := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("resultaccesses").GroupResource(), "", errors.New("no"))
	a, _, _ := newAccess(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return denied },
	})
	if _, err := a.Token(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("error %v does not hold the API server's", err)
	}
}

// A user whom RBAC refuses learns what to ask for. A webhook's refusal is left as it is.
func TestAccessWithoutTheRole(t *testing.T) {
	for message, want := range map[string]bool{`User "ann" cannot create resource "resultaccesses"`: true, "user ann lacks the verb capture": false} {
		a, _, _ := newAccess(t, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("resultaccesses").GroupResource(), "", errors.New(message))
			},
		})
		_, err := a.Token(t.Context())
		if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ask an admin for the ClusterRole sonde-edit in namespace shop") != want {
			t.Errorf("%s: %v", message, err)
		}
	}
}
