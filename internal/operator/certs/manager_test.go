package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/operator/health"
)

func getSecret(t *testing.T, c client.Client) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "sonde-system", Name: SecretName}, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func serving(t *testing.T, m *Manager) *tls.Certificate {
	t.Helper()
	c, err := m.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReplicasServeTheSame(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	clk := clocktesting.NewFakeClock(start)
	a, b := NewManager(c, "sonde-system", clk), NewManager(c, "sonde-system", clk)
	if err := a.Ready(nil); err == nil {
		t.Error("ready before there is a certificate")
	}
	if a.CABundle() != nil {
		t.Error("a bundle before there is a certificate")
	}
	for _, m := range []*Manager{a, b} {
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(serving(t, a).Certificate, serving(t, b).Certificate); diff != "" {
		t.Errorf("certificates differ:\n%s", diff)
	}
	for _, n := range names {
		if err := serving(t, a).Leaf.VerifyHostname(n); err != nil {
			t.Error(err)
		}
	}
	if err := a.Ready(nil); err != nil {
		t.Error(err)
	}
}

func TestTheSlowerReplicaTakesTheFastersSecret(t *testing.T) {
	var fast *Manager
	raced := false
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if !raced {
				raced = true
				if err := fast.Sync(ctx); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if !raced {
				raced = true
				if err := fast.Sync(ctx); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	clk := clocktesting.NewFakeClock(start)
	fast = NewManager(c, "sonde-system", clk)
	slow := NewManager(c, "sonde-system", clk)
	for _, wait := range []time.Duration{0, leafLife} { // both create; both renew
		clk.Step(wait)
		raced = false
		if err := slow.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(serving(t, fast).Certificate, serving(t, slow).Certificate); diff != "" {
			t.Errorf("certificates differ:\n%s", diff)
		}
	}
}

func TestSyncWritesOnlyWhatChanged(t *testing.T) {
	writes := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	m := NewManager(c, "sonde-system", clocktesting.NewFakeClock(start))
	bundles := 0
	m.OnChange(func() { bundles++; m.CABundle() })
	for range 3 {
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 0 || bundles != 1 {
		t.Errorf("%d updates and %d new bundles, want 0 and 1", writes, bundles)
	}
	s := getSecret(t, c)
	s.Data[keyCACert] = []byte("tampered")
	if err := c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	writes = 0
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if writes != 1 || bundles != 2 {
		t.Errorf("%d updates and %d new bundles after tampering, want 1 and 2", writes, bundles)
	}
	if err := c.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := m.Sync(t.Context()); err != nil || bundles != 3 {
		t.Errorf("%d new bundles after the Secret was deleted, want 3 (%v)", bundles, err)
	}
}

func TestFailureKeepsWhatIsServed(t *testing.T) {
	broken := errors.New("API server away")
	var fails atomic.Bool
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if fails.Load() {
				return broken
			}
			return c.Get(ctx, k, o, opts...)
		},
	}).Build()
	m := NewManager(c, "sonde-system", clocktesting.NewFakeClock(start))
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := serving(t, m)
	fails.Store(true)
	if err := m.Sync(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if diff := cmp.Diff(before.Certificate, serving(t, m).Certificate); diff != "" {
		t.Errorf("certificate changed:\n%s", diff)
	}
}

func TestEndlessConflictsAreReported(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			// Another client creates it first and deletes it before it can be read.
			return apierrors.NewAlreadyExists(corev1.Resource("secrets"), o.GetName())
		},
	}).Build()
	m := NewManager(c, "sonde-system", clocktesting.NewFakeClock(start))
	if err := m.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "find out in the audit log") {
		t.Errorf("got %v", err)
	}
}

func TestStartRepeatsChecks(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	clk := clocktesting.NewFakeClock(start)
	m := NewManager(c, "sonde-system", clk)
	m.Watchdog = &health.Watchdog{Limit: time.Minute, Clock: clk}
	synced := make(chan struct{}, 8)
	m.OnChange(func() { synced <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	<-synced
	if err := c.Delete(t.Context(), getSecret(t, c)); err != nil {
		t.Fatal(err)
	}
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond) // the fake clock cannot be waited on otherwise
	}
	clk.Step(checkInterval)
	<-synced
	getSecret(t, c)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if m.NeedLeaderElection() {
		t.Error("a standby would have no certificate")
	}
}

// TestFollowed: the Secret is read live only when it has changed or a certificate is due.
func TestFollowed(t *testing.T) {
	reads := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, k, o, opts...)
		},
	}).Build()
	clk := clocktesting.NewFakeClock(start)
	m := NewManager(c, "sonde-system", clk)
	m.Watchdog = &health.Watchdog{Limit: time.Minute, Clock: clk}
	m.secrets = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			defer func(n int) { reads = n }(reads) // the cache costs nothing
			return c.Get(ctx, k, o, opts...)
		},
	})
	for _, step := range []struct {
		name    string
		happens func()
		want    int
	}{
		{"at start", func() {}, 1},
		{"nothing happened", func() { clk.Step(checkInterval) }, 0},
		{"the Secret was damaged", func() {
			s := getSecret(t, c)
			s.Data[keyCACert] = []byte("tampered")
			if err := c.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"it was deleted", func() {
			if err := c.Delete(t.Context(), getSecret(t, c)); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"it has expired", func() { clk.Step(leafLife) }, 1},
		{"nothing happened again", func() {}, 0},
	} {
		step.happens()
		reads = 0
		if err := m.check(t.Context()); err != nil || reads != step.want {
			t.Errorf("%s: %d reads (%v), want %d", step.name, reads, err, step.want)
		}
	}
}
