package platform

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
)

// readerCache is a cache that reads from a fake cluster.
type readerCache struct {
	cache.Cache
	reader client.Reader
}

func (c readerCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, opts...)
}

func cacheOf(c client.Reader) ConfigurationCache {
	return ConfigurationCache{standbyCache{readerCache{reader: c}}}
}

// gatedIn reads the namespaces of the configuration; nil if it does not exist.
func gatedIn(t *testing.T, c client.Client) []string {
	t.Helper()
	var o admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Get(t.Context(), client.ObjectKey{Name: PodConfigurationName}, &o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "r-1" || len(o.Webhooks) != 2 {
		t.Errorf("owners %+v, %d webhooks", o.OwnerReferences, len(o.Webhooks))
	}
	var in []string
	for _, w := range o.Webhooks {
		in = append(in, w.NamespaceSelector.MatchExpressions[0].Values...)
	}
	slices.Sort(in)
	return slices.Compact(in)
}

// TestPodConfigurationFollowsTraces checks that the configuration follows the Traces, and that changes by others are reverted.
func TestPodConfigurationFollowsTraces(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role())
	bundle := []byte("one")
	r := NewPodConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return bundle })
	shop, bank, ended := gating(t, "a", nil), gating(t, "b", func(t *sondev1.Trace) { t.Spec.TargetNamespace = "bank" }), gating(t, "c", nil)
	ended.Spec.TargetNamespace, ended.Status.Phase = "over", sondev1.PhaseCompleted
	system := gating(t, "d", func(t *sondev1.Trace) { t.Spec.TargetNamespace = "kube-system" })
	change := func(write func(client.Object) error, o client.Object) func() {
		return func() {
			if err := write(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func(o client.Object) error { return c.Create(t.Context(), o) }
	update := func(o client.Object) error { return c.Update(t.Context(), o) }
	remove := func(o client.Object) error { return c.Delete(t.Context(), o) }
	steps := []struct {
		what   string
		before func()
		want   []string
		writes int // applies in all
	}{
		{"no traces", func() {}, nil, 0},
		{"traces that gate nothing", func() { change(create, ended)(); change(create, system)() }, nil, 0},
		{"the first", change(create, shop), []string{"shop"}, 1},
		{"nothing changed", func() {}, []string{"shop"}, 1},
		{"a second", change(create, bank), []string{"bank", "shop"}, 2},
		{"a new bundle", func() { bundle = []byte("two") }, []string{"bank", "shop"}, 3},
		{"one stops gating", func() { shop.Status.Conditions[0].Status = metav1.ConditionFalse; change(update, shop)() }, []string{"bank"}, 4},
		{"deleted by someone", func() {
			change(remove, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PodConfigurationName}})()
		}, []string{"bank"}, 5},
		{"widened by someone", func() {
			var o admissionregistrationv1.MutatingWebhookConfiguration
			if err := c.Get(t.Context(), client.ObjectKey{Name: PodConfigurationName}, &o); err != nil {
				t.Fatal(err)
			}
			o.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values = []string{"bank", "others"}
			change(update, &o)()
		}, []string{"bank"}, 6},
		{"the last one is deleted", change(remove, bank), nil, 6},
		{"nothing changed again", func() {}, nil, 6},
	}
	for _, s := range steps {
		s.before()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: PodConfigurationName}}); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if diff := cmp.Diff(s.want, gatedIn(t, c)); diff != "" || c.applies != s.writes {
			t.Errorf("%s: %d applies, want %d; namespaces (-want +got):\n%s", s.what, c.applies, s.writes, diff)
		}
	}
}

// TestPodConfigurationAlone checks that neither of the two reconcilers changes the other's configuration.
func TestPodConfigurationAlone(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role(), gating(t, "a", nil))
	r := NewPodConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	pass(t, r) // a request for the other configuration
	if c.applies != 0 {
		t.Errorf("%d applies", c.applies)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: PodConfigurationName}}); err != nil {
		t.Fatal(err)
	}
	if in := gatedIn(t, c); c.applies != 1 || len(in) != 1 {
		t.Errorf("%d applies for %v", c.applies, in)
	}
}

// TestPodConfigurationFollowsFluentPVCs checks that the configuration has the webhook of sidecars while there is a
// FluentPVC, first and beside those of gates, and that changes by others are reverted.
func TestPodConfigurationFollowsFluentPVCs(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role())
	r := NewPodConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	logs, dumps := fluentPVC("logs"), fluentPVC("dumps")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	configuration := func() *admissionregistrationv1.MutatingWebhookConfiguration {
		var o admissionregistrationv1.MutatingWebhookConfiguration
		err := c.Get(t.Context(), client.ObjectKey{Name: PodConfigurationName}, &o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		must(err)
		return &o
	}
	sidecars, gate, required := sidecar.WebhookName, gate.WebhookName, gate.WebhookNameRequired
	trace := gating(t, "a", nil)
	steps := []struct {
		what   string
		before func()
		want   []string // names of the webhooks
		writes int      // applies in all
	}{
		{"no FluentPVC", func() {}, nil, 0},
		{"the first", func() { must(c.Create(t.Context(), logs)) }, []string{sidecars}, 1},
		{"nothing changed", func() {}, []string{sidecars}, 1},
		{"a second", func() { must(c.Create(t.Context(), dumps)) }, []string{sidecars}, 1},
		{"a gate", func() { must(c.Create(t.Context(), trace)) }, []string{sidecars, gate, required}, 2},
		{"nothing changed beside a gate", func() {}, []string{sidecars, gate, required}, 2},
		{"opened by someone", func() {
			o := configuration()
			o.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			must(c.Update(t.Context(), o))
		}, []string{sidecars, gate, required}, 3},
		{"deleted by someone", func() { must(c.Delete(t.Context(), configuration())) }, []string{sidecars, gate, required}, 4},
		{"one is deleted", func() { must(c.Delete(t.Context(), logs)) }, []string{sidecars, gate, required}, 4},
		{"the last one is deleted", func() { must(c.Delete(t.Context(), dumps)) }, []string{gate, required}, 5},
		{"the gate is deleted", func() { must(c.Delete(t.Context(), trace)) }, nil, 5},
		{"nothing changed again", func() {}, nil, 5},
	}
	for _, s := range steps {
		s.before()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: PodConfigurationName}})
		must(err)
		var names []string
		if o := configuration(); o != nil {
			for _, w := range o.Webhooks {
				names = append(names, w.Name)
				if w.Name == sidecars && (*w.FailurePolicy != admissionregistrationv1.Fail || len(w.MatchConditions) != 2) {
					t.Errorf("%s: differs from the desired one: %+v", s.what, w)
				}
			}
		}
		if diff := cmp.Diff(s.want, names); diff != "" || c.applies != s.writes {
			t.Fatalf("%s: %d applies, want %d; webhooks (-want +got):\n%s", s.what, c.applies, s.writes, diff)
		}
	}
}

// TestPodConfigurationStays checks that the configuration stays if what it depends on cannot be listed.
func TestPodConfigurationStays(t *testing.T) {
	for name, unlisted := range map[string]client.ObjectList{"traces": &sondev1.TraceList{}, "fluentpvcs": &sondev1.FluentPVCList{}} {
		t.Run(name, func(t *testing.T) {
			broken := errors.New("no connection")
			c := newCluster(t, interceptor.Funcs{
				List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if reflect.TypeOf(l) == reflect.TypeOf(unlisted) {
						return broken
					}
					return w.List(ctx, l, opts...)
				},
			}, role(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: PodConfigurationName}})
			r := NewPodConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: PodConfigurationName}}); !errors.Is(err, broken) {
				t.Errorf("error %v, want %v", err, broken)
			}
			if err := c.Get(t.Context(), client.ObjectKey{Name: PodConfigurationName}, &admissionregistrationv1.MutatingWebhookConfiguration{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func fluentPVC(name string) *sondev1.FluentPVC {
	return &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
