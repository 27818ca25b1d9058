//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sonde-operator/sonde/test/cluster"
)

// ignored are the kinds that the comparison leaves out, with the reason.
var ignored = map[string]string{
	"events":      "records of what happened, which Kubernetes deletes after an hour",
	"leases":      "heartbeats",
	"ipaddresses": "kept in step with Services by the API server",
}

// apiObjects adds the objects of all kinds.
func apiObjects(t *testing.T, s snapshot) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if ignored[r.Name] != "" || !strings.Contains(strings.Join(r.Verbs, " ")+" ", "list ") {
				continue
			}
			objects, err := c.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for i := range objects.Items {
				s[object(t, r.Name, &objects.Items[i])]++
			}
		}
	}
}

// object returns an object without the fields that change by themselves: versions, times, field managers and addresses
// of Pods. It leaves out the status, too, which keeps restarts that a fault caused. If a controller recreates
// objects under other names, only their existence remains.
func object(t *testing.T, kind string, o *unstructured.Unstructured) string {
	t.Helper()
	key := fmt.Sprintf("object: %s %s/%s", kind, o.GetNamespace(), normal(o.GetName()))
	if metav1.GetControllerOf(o) != nil || kind == "endpoints" || kind == "endpointslices" {
		return key
	}
	unstructured.RemoveNestedField(o.Object, "status")
	for _, f := range []string{"resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", f)
	}
	// A node that was created again owns what it owned before.
	owners, _, _ := unstructured.NestedSlice(o.Object, "metadata", "ownerReferences")
	for _, owner := range owners {
		delete(owner.(map[string]any), "uid")
	}
	if len(owners) > 0 {
		if err := unstructured.SetNestedSlice(o.Object, owners, "metadata", "ownerReferences"); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return key + " " + webhookPath.ReplaceAllString(string(b), `"$1"`)
}

// webhookPath ends with a secret that changes each hour.
var webhookPath = regexp.MustCompile(`"(/mutate-[^"]*)/[0-9a-f]{32}"`)
