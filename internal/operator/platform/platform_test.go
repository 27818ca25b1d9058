package platform_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/operator/platform"
)

func object(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// broken maps for an API server that does not answer.
type broken struct{ apimeta.RESTMapper }

var errAway = errors.New("API server away")

func (broken) RESTMapping(schema.GroupKind, ...string) (*apimeta.RESTMapping, error) {
	return nil, errAway
}

func TestPresent(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Here"}, apimeta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Newer"}, apimeta.RESTScopeRoot)
	here := object("Here", "", "a")
	got, err := platform.Present(mapper, here, object("Newer", "", "b"), object("Nowhere", "", "c"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*unstructured.Unstructured{here}, got); diff != "" {
		t.Errorf("present (-want +got):\n%s", diff)
	}
	if _, err := platform.Present(broken{}, here); !errors.Is(err, errAway) {
		t.Errorf("got %v, want %v: an API that cannot be looked up is not absent", err, errAway)
	}
}

func TestCacheOnly(t *testing.T) {
	for kind, o := range platform.CacheOnly(object("Wide", "", "a")) {
		if is := kind.GetObjectKind().GroupVersionKind().Kind; is != "Wide" || o.Field.String() != "metadata.name=a" || len(o.Namespaces) != 0 {
			t.Errorf("%s: %v", is, o)
		}
	}
	for kind, o := range platform.CacheOnly(object("Narrow", "ns", "b")) {
		n, ok := o.Namespaces["ns"]
		if is := kind.GetObjectKind().GroupVersionKind().Kind; is != "Narrow" || !ok || len(o.Namespaces) != 1 || n.FieldSelector.String() != "metadata.name=b" {
			t.Errorf("%s: %v", is, o)
		}
	}
}

func TestOwner(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platform.OwnerClusterRole, UID: "r-1"}}
	away := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errAway
	}}
	cases := map[string]struct {
		live    client.Client
		want    types.UID
		wantErr error
	}{
		"exists":  {live: fake.NewClientBuilder().WithObjects(role).Build(), want: "r-1"},
		"missing": {live: fake.NewClientBuilder().Build()},
		"unknown": {live: fake.NewClientBuilder().WithInterceptorFuncs(away).Build(), wantErr: errAway},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := platform.Owner(t.Context(), tc.live, "Kind/name")
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tc.want, tc.wantErr)
			}
			refs := platform.OwnerReferences(got)
			if len(refs) != len(tc.want)/3 {
				t.Errorf("references %v for %q", refs, got)
			}
			for _, r := range refs {
				if r.BlockOwnerDeletion != nil || r.Controller != nil || r.UID != tc.want {
					t.Errorf("reference %v", r)
				}
			}
		})
	}
}

func TestCovers(t *testing.T) {
	desired := func() map[string]any {
		return map[string]any{
			"flag": true, "off": false, "number": int64(-10), "none": []any{}, "empty": map[string]any{},
			"list": []any{"a", map[string]any{"k": "v"}}, "deep": map[string]any{"x": map[string]any{"y": "z"}},
		}
	}
	cases := map[string]struct {
		change func(live map[string]any)
		want   bool
	}{
		"the same":                 {change: func(map[string]any) {}, want: true},
		"defaults added":           {change: func(l map[string]any) { l["more"] = "x"; l["deep"].(map[string]any)["d"] = true }, want: true},
		"default in a list's item": {change: func(l map[string]any) { l["list"].([]any)[1].(map[string]any)["d"] = "e" }, want: true},
		"empty list dropped":       {change: func(l map[string]any) { delete(l, "none"); delete(l, "empty") }, want: true},
		"list replaced by text":    {change: func(l map[string]any) { l["none"] = "x" }},
		"map replaced by text":     {change: func(l map[string]any) { l["empty"] = "x" }},
		"list made null":           {change: func(l map[string]any) { l["none"] = nil }, want: true},
		"list filled":              {change: func(l map[string]any) { l["none"] = []any{"x"} }},
		"list longer":              {change: func(l map[string]any) { l["list"] = append(l["list"].([]any), "b") }},
		"list shorter":             {change: func(l map[string]any) { l["list"] = l["list"].([]any)[:1] }},
		"list reordered":           {change: func(l map[string]any) { s := l["list"].([]any); s[0], s[1] = s[1], s[0] }},
		"false removed":            {change: func(l map[string]any) { delete(l, "off") }},
		"flag changed":             {change: func(l map[string]any) { l["flag"] = false }},
		"number changed":           {change: func(l map[string]any) { l["number"] = int64(10) }},
		"number of another type":   {change: func(l map[string]any) { l["number"] = "-10" }},
		"deep change":              {change: func(l map[string]any) { l["deep"].(map[string]any)["x"].(map[string]any)["y"] = "w" }},
		"deep replaced by text":    {change: func(l map[string]any) { l["deep"] = "z" }},
		"deep removed":             {change: func(l map[string]any) { delete(l, "deep") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := desired()
			tc.change(live)
			if got := platform.Covers(&unstructured.Unstructured{Object: desired()}, &unstructured.Unstructured{Object: live}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCoversOwners(t *testing.T) {
	owned := func(uids ...types.UID) *unstructured.Unstructured {
		u := object("Kind", "", "a")
		var refs []metav1.OwnerReference
		for _, uid := range uids {
			refs = append(refs, platform.OwnerReferences(uid)...)
		}
		u.SetOwnerReferences(refs)
		return u
	}
	cases := map[string]struct {
		live *unstructured.Unstructured
		want bool
	}{
		"ours":             {live: owned("u"), want: true},
		"ours and another": {live: owned("o", "u"), want: true},
		"another":          {live: owned("o")},
		"none":             {live: owned()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := platform.Covers(owned("u"), tc.live); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRestartsContainers(t *testing.T) {
	for version, want := range map[string]bool{"v1.30.4": false, "v1.34.9": false, "v1.35.0": true, "v1.36.3+k3s1": true, "v1.36.0-rc.0": true, "v2.0.0": true} {
		if got, err := platform.RestartsContainers(version); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", version, got, err, want)
		}
	}
	if _, err := platform.RestartsContainers("newest"); err == nil {
		t.Error("no error for an invalid version")
	}
}
