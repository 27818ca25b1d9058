package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// OtelcolImage is an OpenTelemetry Collector (make image-collector).
const OtelcolImage = "sonde.local/otelcol:1"

// OpenedNamespace returns a namespace in which the operator may run Helm.
func OpenedNamespace(t *testing.T) string {
	t.Helper()
	ns := Namespace(t, nil)
	OpenCollectors(t, ns)
	return ns
}

// OpenCollectors lets the operator run Helm in a namespace, as its admin does.
func OpenCollectors(t *testing.T, ns string) {
	t.Helper()
	const admin = "tenant-admin"
	Bind(t, ns, admin, "admin")
	cmd, out, errOut := StartPlugin(t, "collector", "open", "-n", ns, "--as", admin, "--as-group", "system:authenticated")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errOut)
	}
}

// Values are those of the embedded chart, with the image of the tests.
func Values(t *testing.T, more map[string]any) *runtime.RawExtension {
	t.Helper()
	all := map[string]any{"image": OtelcolImage, "persistence": map[string]any{"size": "16Mi"}}
	maps.Copy(all, more)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: b}
}

// NewCollector is a Collector whose release is collector-prod in its own namespace.
func NewCollector(t *testing.T, ns string, values map[string]any) *sondev1.Collector {
	t.Helper()
	return &sondev1.Collector{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"},
		Spec: sondev1.CollectorSpec{
			Collector: sondev1.CollectorRelease{Name: "collector"}, Tenant: sondev1.CollectorTenant{ID: "4711", Reference: ns, Instance: "prod"},
			Values: Values(t, values),
		},
	}
}

// ChangeCollector changes the spec.
func ChangeCollector(t *testing.T, c *sondev1.Collector, change func(*sondev1.CollectorSpec)) {
	t.Helper()
	Eventually(t, time.Minute, "the Collector is changed", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		change(&c.Spec)
		return Admin.Update(ctx, c)
	})
}

// RetryCollector asks for another attempt, or another look.
func RetryCollector(t *testing.T, c *sondev1.Collector) {
	t.Helper()
	Eventually(t, time.Minute, "the Collector is annotated", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, sondev1.AnnotationRetry, time.Now().Format(time.RFC3339Nano))
		return Admin.Update(ctx, c)
	})
}

// AwaitCollector waits until a condition has a status and, unless it is empty, a reason for the current generation.
func AwaitCollector(t *testing.T, c *sondev1.Collector, kind string, status metav1.ConditionStatus, reason string, within time.Duration) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	Eventually(t, within, fmt.Sprintf("%s is %s, %s", kind, status, reason), func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		found = apimeta.FindStatusCondition(c.Status.Conditions, kind)
		if found == nil || found.Status != status || reason != "" && found.Reason != reason || found.ObservedGeneration != c.Generation {
			return fmt.Errorf("generation %d, status %+v", c.Generation, c.Status)
		}
		return nil
	})
	return found
}

// ReleaseObjects returns the objects of a namespace that belong to releases and their Jobs, as KIND/NAME with their resourceVersions.
// Those that every namespace has, and volumes, are left out.
func ReleaseObjects(ctx context.Context, ns string) (map[string]string, error) {
	found := map[string]string{}
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}, &networkingv1.NetworkPolicyList{}, &batchv1.JobList{}, &corev1.PodList{},
	} {
		if err := Admin.List(ctx, list, client.InNamespace(ns)); err != nil {
			return nil, err
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			o := item.(client.Object)
			if o.GetName() != "kube-root-ca.crt" && o.GetName() != "openshift-service-ca.crt" {
				found[fmt.Sprintf("%T/%s", o, o.GetName())] = o.GetResourceVersion()
			}
		}
	}
	return found, nil
}

// NoRelease waits until nothing of a release is left in a namespace.
func NoRelease(t *testing.T, ns string, within time.Duration) {
	t.Helper()
	Eventually(t, within, "nothing of the release is left", func(ctx context.Context) error {
		found, err := ReleaseObjects(ctx, ns)
		if err == nil && len(found) > 0 {
			return fmt.Errorf("found %v", found)
		}
		return err
	})
}
