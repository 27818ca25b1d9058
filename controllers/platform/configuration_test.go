package platform

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestBuildConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		options ConfigurationOptions
		golden  string
	}{
		"owned": {
			options: ConfigurationOptions{Namespace: "sonde-system", SecretPath: "/secret", CABundle: []byte("bundle"), OwnerUID: "0a0b"},
			golden:  "testdata/configuration.yaml",
		},
		"without owner": {
			options: ConfigurationOptions{Namespace: "elsewhere", CABundle: []byte("bundle")},
			golden:  "testdata/configuration-without-owner.yaml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(BuildConfiguration(tc.options))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(tc.golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(tc.golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("configuration (-want +got), rewrite with -update:\n%s", diff)
			}
		})
	}
}

// noon begins a period of the secret path.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func secretAt(t time.Time) webhookpath.Secret {
	return webhookpath.New([]byte("key"), clocktesting.NewFakePassiveClock(t))
}

// cluster is a fake cluster that counts applies.
type cluster struct {
	client.Client
	applies int
}

func newCluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *cluster {
	t.Helper()
	c := &cluster{}
	funcs.Apply = func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		c.applies++
		return w.Apply(ctx, o, opts...)
	}
	c.Client = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return c
}

func role() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platform.OwnerClusterRole, UID: "r-1"}}
}

func pass(t *testing.T, r *ConfigurationReconciler) ctrl.Result {
	t.Helper()
	res, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: ConfigurationName}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func liveConfiguration(t *testing.T, c client.Client) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	var o admissionregistrationv1.MutatingWebhookConfiguration
	if err := c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestReconcileRepairs(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role())
	var bundle []byte
	r := NewConfigurationReconciler(c, c, "sonde-system", secretAt(noon), func() []byte { return bundle })

	if res := pass(t, r); res.RequeueAfter == 0 || c.applies != 0 {
		t.Errorf("without a bundle: %+v and %d applies, want a later pass and none", res, c.applies)
	}
	bundle = []byte("one")
	steps := []struct {
		what   string
		before func()
		want   int // applies in all
	}{
		{"first pass", func() {}, 1},
		{"nothing changed", func() {}, 1},
		{"new bundle", func() { bundle = []byte("two") }, 2},
		{"deleted", func() {
			if err := c.Delete(t.Context(), liveConfiguration(t, c)); err != nil {
				t.Fatal(err)
			}
		}, 3},
		{"changed to fail open", func() {
			o := liveConfiguration(t, c)
			ignore := admissionregistrationv1.Ignore
			o.Webhooks[0].FailurePolicy = &ignore
			if err := c.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}, 4},
		{"narrowed", func() {
			o := liveConfiguration(t, c)
			o.Webhooks[1].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			if err := c.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}, 5},
		{"unowned", func() {
			o := liveConfiguration(t, c)
			o.OwnerReferences = nil
			if err := c.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}, 6},
		{"nothing changed again", func() {}, 6},
	}
	for _, s := range steps {
		s.before()
		pass(t, r)
		if c.applies != s.want {
			t.Errorf("%s: %d applies, want %d", s.what, c.applies, s.want)
		}
		o := liveConfiguration(t, c)
		if len(o.Webhooks) != 6 || string(o.Webhooks[0].ClientConfig.CABundle) != string(bundle) ||
			*o.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail || len(o.Webhooks[1].NamespaceSelector.MatchLabels) != 0 {
			t.Errorf("%s: differs from the desired one: %+v", s.what, o.Webhooks)
		}
		if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "r-1" {
			t.Errorf("%s: owners %+v, want r-1", s.what, o.OwnerReferences)
		}
	}
}

// TestSecretPathChanges: each period has a path of its own, which is written once. No earlier pass writes.
func TestSecretPathChanges(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role())
	clk := clocktesting.NewFakePassiveClock(noon)
	r := NewConfigurationReconciler(c, c, "sonde-system", webhookpath.New([]byte("key"), clk), func() []byte { return []byte("one") })
	written := map[string]bool{}
	for period := range 3 {
		for range 2 {
			if res := pass(t, r); res.RequeueAfter != webhookpath.Period {
				t.Errorf("period %d: next pass in %s, want it when the path changes", period, res.RequeueAfter)
			}
		}
		clk.SetTime(clk.Now().Add(webhookpath.Period - 1))
		if res := pass(t, r); res.RequeueAfter != 1 || c.applies != period+1 {
			t.Errorf("period %d: next pass in %s, %d applies in all", period, res.RequeueAfter, c.applies)
		}
		for _, w := range liveConfiguration(t, c).Webhooks {
			written[*w.ClientConfig.Service.Path] = true
		}
		clk.SetTime(clk.Now().Add(1))
	}
	if len(written) != 6*3 {
		t.Errorf("%d paths of six webhooks in three periods: %v", len(written), written)
	}
}

func TestReconcileWithoutOwner(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{})
	r := NewConfigurationReconciler(c, c, "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	pass(t, r)
	if o := liveConfiguration(t, c); len(o.OwnerReferences) != 0 {
		t.Errorf("owners %+v, want none", o.OwnerReferences)
	}
}

func TestReconcileReportsFailures(t *testing.T) {
	broken := errors.New("API server away")
	c := newCluster(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		},
	})
	r := NewConfigurationReconciler(c, c, "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: ConfigurationName}})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "someone-elses"}}); err != nil {
		t.Errorf("other configuration: %v", err)
	}
}

func TestTriggerNeverBlocks(t *testing.T) {
	r := NewConfigurationReconciler(nil, nil, "sonde-system", secretAt(noon), nil)
	for range 10 {
		r.Trigger()
	}
	if e := <-r.triggers; e.Object.GetName() != ConfigurationName {
		t.Errorf("triggered for %q", e.Object.GetName())
	}
}
