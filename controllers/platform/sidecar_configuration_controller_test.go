package platform

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestSidecarConfigurationFollows checks that the configuration exists while there is a FluentPVC, and that changes by others are
// reverted.
func TestSidecarConfigurationFollows(t *testing.T) {
	c := newCluster(t, interceptor.Funcs{}, role())
	r := NewSidecarConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	logs, dumps := fluentPVC("logs"), fluentPVC("dumps")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	configuration := func() *admissionregistrationv1.MutatingWebhookConfiguration {
		var o admissionregistrationv1.MutatingWebhookConfiguration
		err := c.Get(t.Context(), client.ObjectKey{Name: SidecarConfigurationName}, &o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		must(err)
		return &o
	}
	steps := []struct {
		what   string
		before func()
		want   bool
		writes int // applies in all
	}{
		{"no FluentPVC", func() {}, false, 0},
		{"the first", func() { must(c.Create(t.Context(), logs)) }, true, 1},
		{"nothing changed", func() {}, true, 1},
		{"a second", func() { must(c.Create(t.Context(), dumps)) }, true, 1},
		{"opened by someone", func() {
			o := configuration()
			o.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			must(c.Update(t.Context(), o))
		}, true, 2},
		{"deleted by someone", func() { must(c.Delete(t.Context(), configuration())) }, true, 3},
		{"one is deleted", func() { must(c.Delete(t.Context(), logs)) }, true, 3},
		{"the last one is deleted", func() { must(c.Delete(t.Context(), dumps)) }, false, 3},
		{"nothing changed again", func() {}, false, 3},
	}
	for _, s := range steps {
		s.before()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: SidecarConfigurationName}})
		must(err)
		o := configuration()
		if (o != nil) != s.want || c.applies != s.writes {
			t.Fatalf("%s: %d applies, want %d; configuration %v", s.what, c.applies, s.writes, o)
		}
		if o != nil && (*o.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail || len(o.Webhooks[0].MatchConditions) != 2) {
			t.Errorf("%s: differs from the desired one: %+v", s.what, o.Webhooks)
		}
	}
}

// TestSidecarConfigurationStays checks that the configuration stays if the FluentPVCs cannot be listed.
func TestSidecarConfigurationStays(t *testing.T) {
	broken := errors.New("no connection")
	c := newCluster(t, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken },
	}, role(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: SidecarConfigurationName}})
	r := NewSidecarConfigurationReconciler(c, c, cacheOf(c), "sonde-system", secretAt(noon), func() []byte { return []byte("one") })
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: SidecarConfigurationName}}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: SidecarConfigurationName}, &admissionregistrationv1.MutatingWebhookConfiguration{}); err != nil {
		t.Error(err)
	}
}

func fluentPVC(name string) *sondev1.FluentPVC {
	return &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
