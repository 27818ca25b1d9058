//go:build api

package api

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	collectorwebhook "github.com/sonde-operator/sonde/webhooks/collector"
)

// collectorObject is a Collector of namespace ns with changed fields.
func collectorObject(ns string, fields map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"collector": map[string]any{"name": "collector"}, "tenant": map[string]any{"reference": strings.ToUpper(ns), "instance": "prod"}}
	maps.Copy(spec, fields)
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(sondev1.GroupVersion.WithKind(sondev1.CollectorKind))
	o.SetNamespace(ns)
	o.SetGenerateName("col-")
	return o
}

func TestCollectorRules(t *testing.T) {
	ns := namespace(t, nil)
	collector := func(more map[string]any) map[string]any {
		all := map[string]any{"name": "collector"}
		maps.Copy(all, more)
		return map[string]any{"collector": all}
	}
	tenant := func(more map[string]any) map[string]any {
		all := map[string]any{"reference": ns, "instance": "prod"}
		maps.Copy(all, more)
		return map[string]any{"tenant": all}
	}
	chart := func(source, url string, more map[string]any) map[string]any {
		all := map[string]any{"source": source, "url": url}
		maps.Copy(all, more)
		return map[string]any{"chart": all}
	}
	for name, c := range map[string]creation{
		"a tenant":                  {},
		"everything":                {fields: map[string]any{"cluster": "east", "values": map[string]any{"a": map[string]any{"b": int64(1)}}, "install": map[string]any{"timeout": "90s", "retries": int64(0)}, "suspend": true}},
		"no name":                   {fields: map[string]any{"collector": map[string]any{"version": "1.0.0"}}, want: "collector.name"},
		"a name in upper case":      {fields: collector(map[string]any{"name": "Collector"}), want: "must begin with a letter"},
		"a name with a digit":       {fields: collector(map[string]any{"name": "1collector"}), want: "must begin with a letter"},
		"no tenant":                 {fields: map[string]any{"tenant": map[string]any{"id": "1"}}, want: "reference"},
		"no namespace's name":       {fields: tenant(map[string]any{"reference": "a_b"}), want: "tenant.reference must be"},
		"an instance with a dot":    {fields: tenant(map[string]any{"instance": "a.b"}), want: "tenant.instance must"},
		"a long name":               {fields: map[string]any{"collector": map[string]any{"name": strings.Repeat("a", 40)}, "tenant": map[string]any{"reference": ns, "instance": strings.Repeat("b", 13)}}, want: "Helm allows 53 characters"},
		"the longest name":          {fields: map[string]any{"collector": map[string]any{"name": strings.Repeat("a", 40)}, "tenant": map[string]any{"reference": ns, "instance": strings.Repeat("b", 12)}}},
		"values that are no map":    {fields: map[string]any{"values": "a"}, want: "values"},
		"words for a time":          {fields: map[string]any{"install": map[string]any{"timeout": "long"}}, want: "timeout must be seconds"},
		"a second":                  {fields: map[string]any{"upgrade": map[string]any{"timeout": "1s"}}, want: "between 10s and 1h"},
		"values from a Secret":      {fields: map[string]any{"valuesFrom": []any{map[string]any{"kind": "Secret", "name": "a.b"}, map[string]any{"kind": "ConfigMap", "name": "c", "key": "K_1"}}}},
		"values from a Pod":         {fields: map[string]any{"valuesFrom": []any{map[string]any{"kind": "Pod", "name": "a"}}}, want: "kind"},
		"a key with a slash":        {fields: map[string]any{"valuesFrom": []any{map[string]any{"kind": "Secret", "name": "a", "key": "../x"}}}, want: "key must consist of"},
		"a name with a slash":       {fields: map[string]any{"valuesFrom": []any{map[string]any{"kind": "Secret", "name": "a/b"}}}, want: "name must be that of"},
		"a remediation":             {fields: map[string]any{"install": map[string]any{"remediation": "uninstall"}, "upgrade": map[string]any{"remediation": "uninstall"}}},
		"a first one rolled back":   {fields: map[string]any{"install": map[string]any{"remediation": "rollback"}}, want: "can only be uninstall"},
		"another remediation":       {fields: map[string]any{"upgrade": map[string]any{"remediation": "pray"}}, want: "remediation"},
		"a password over http":      {fields: chart("http", "http://charts.example.com", map[string]any{"secretRef": map[string]any{"name": "x"}}), want: "must be https"},
		"drift":                     {fields: map[string]any{"drift": "Repair", "interval": "5m"}},
		"another drift":             {fields: map[string]any{"drift": "Fix"}, want: "drift"},
		"a short interval":          {fields: map[string]any{"drift": "Warn", "interval": "1s"}, want: "between 30s and 24h"},
		"a negative number":         {fields: map[string]any{"upgrade": map[string]any{"retries": int64(-1)}}, want: "retries"},
		"a chart in a registry":     {fields: chart("oci", "oci://registry.example.com/charts/x", nil)},
		"a chart in a repository":   {fields: chart("http", "https://charts.example.com/stable", map[string]any{"digest": "sha256:" + strings.Repeat("a", 64), "secretRef": map[string]any{"name": "x"}})},
		"no url":                    {fields: map[string]any{"chart": map[string]any{"source": "oci"}}, want: "need a url"},
		"a url of the embedded":     {fields: chart("embedded", "https://charts.example.com", nil), want: "need a url"},
		"a url of another source":   {fields: chart("oci", "https://registry.example.com/x", nil), want: "url must be like"},
		"a url with a password":     {fields: chart("http", "https://a:b@charts.example.com", nil), want: "credentials belong into secretRef"},
		"another source":            {fields: chart("git", "https://x", nil), want: "source"},
		"a digest of another form":  {fields: chart("oci", "oci://r/x", map[string]any{"digest": "md5:1"}), want: "digest must be"},
		"a very long configuration": {fields: collector(map[string]any{"configuration": strings.Repeat("a", 262145)}), want: "262144"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), collectorObject(ns, c.fields))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// What names the release is immutable, and everything else may change.
func TestCollectorUpdates(t *testing.T) {
	ns := namespace(t, nil)
	o := collectorObject(ns, nil)
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for path, immutable := range map[string]bool{
		"collector.name": true, "tenant.reference": true, "tenant.instance": true, "collector.version": false, "tenant.id": false, "cluster": false,
	} {
		changed := o.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, "other", append([]string{"spec"}, strings.Split(path, ".")...)...); err != nil {
			t.Fatal(err)
		}
		err := admin.Update(t.Context(), changed)
		if immutable != (err != nil && strings.Contains(err.Error(), "immutable")) {
			t.Errorf("%s is changed: %v, want immutable %t", path, err, immutable)
		}
		if err == nil {
			o = changed
		}
	}
	if err := unstructured.SetNestedField(o.Object, strings.ToLower(ns), "spec", "tenant", "reference"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Update(t.Context(), o); err != nil {
		t.Errorf("the same namespace in another case: %v", err)
	}
}

// The API server calls the webhook for a retry, and for no other annotation: so a Collector whose namespace was deleted and created again is
// admitted for the new one.
func TestCollectorIsAdmittedAgainByARetry(t *testing.T) {
	hub, ns := namespace(t, map[string]string{sondev1.LabelHub: "true"}), namespace(t, nil)
	before := collectorObject(hub, map[string]any{"tenant": map[string]any{"reference": ns, "instance": "prod"}})
	before.SetGenerateName("")
	before.SetName("before")
	if err := admin.Create(t.Context(), before); err != nil { // no webhook runs yet
		t.Fatal(err)
	}
	mux, intake := http.NewServeMux(), admission.NewIntake()
	mux.Handle(webhookpath.Collector, intake.Hook(&webhook.Admission{Handler: &collectorwebhook.Handler{
		Cache: admin, Live: admin, Reviews: access.NewReviewer(admin), Key: stampKey, OperatorNamespace: operatorNamespace, Clock: clock.RealClock{},
	}}, nil))
	serve(t, mux, platformcontroller.BuildConfiguration)
	claimOf := func(name string) (stamp.Claim, error) {
		t.Helper()
		c := &sondev1.Collector{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: hub, Name: name}, c); err != nil {
			t.Fatal(err)
		}
		return stamp.VerifyCollector(stampKey, c)
	}
	annotate := func(name, key, value string) {
		t.Helper()
		c := &sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Namespace: hub, Name: name}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`))
		if err := admin.Patch(t.Context(), c, patch); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, uid string) {
		t.Helper()
		if claim, err := claimOf(name); err != nil || claim.TargetNamespaceUID != uid {
			t.Errorf("%s: the stamp is for namespace %q, %v; want %q", name, claim.TargetNamespaceUID, err, uid)
		}
	}
	uidOf := func() string {
		t.Helper()
		in := &corev1.Namespace{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: ns}, in); err != nil {
			t.Fatal(err)
		}
		return string(in.UID)
	}
	poll(t, "webhook called", func() bool {
		annotate("before", sondev1.AnnotationRetry, "1")
		annotate("before", sondev1.AnnotationRetry, "2")
		_, err := claimOf("before")
		return err == nil
	})
	first := uidOf()
	want("before", first)

	c := collectorObject(hub, map[string]any{"tenant": map[string]any{"reference": ns, "instance": "other"}})
	c.SetGenerateName("")
	c.SetName("mine")
	if err := admin.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	want("mine", first)

	replace(t, ns)
	second := uidOf()
	if second == first {
		t.Fatal("the namespace was not replaced")
	}
	annotate("mine", "example.com/note", "1")
	want("mine", first)
	annotate("mine", sondev1.AnnotationRetry, "1")
	want("mine", second)
}

// replace deletes a namespace and creates it again. No controller of namespaces runs here, so the test finalizes it.
func replace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), ns.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if err := admin.SubResource("finalize").Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}
