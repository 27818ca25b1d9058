//go:build api

package api

import (
	"context"
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// Users who may write FluentPVCs as far as RBAC says. Only the definers have the verb inject.
const (
	fluentPVCDefiner = "fluentpvc-definer"
	fluentPVCSecond  = "fluentpvc-second-definer"
	fluentPVCWriter  = "fluentpvc-writer"
)

func fluentPVCUsers(t *testing.T) {
	t.Helper()
	grant := func(name string, rules []rbacv1.PolicyRule, users ...string) {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}
		for _, u := range users {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u})
		}
		for _, o := range []client.Object{role, binding} {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o) })
		}
	}
	grant("fluentpvc-test-write", []rbacv1.PolicyRule{{APIGroups: []string{sondev1.GroupVersion.Group}, Resources: []string{"fluentpvcs"}, Verbs: []string{"*"}}},
		fluentPVCDefiner, fluentPVCSecond, fluentPVCWriter)
	grant("fluentpvc-test-inject", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{sondev1.VerbInject}}}, fluentPVCDefiner, fluentPVCSecond)
	poll(t, "RBAC in force", func() bool {
		o := fluentPVCObject(t, fluentPVCSample, "probe", nil)
		return as(t, fluentPVCSecond).Create(t.Context(), o, client.DryRunAll) == nil
	})
}

// created creates o as the definer until the test ends.
func created(t *testing.T, o client.Object) {
	t.Helper()
	if err := as(t, fluentPVCDefiner).Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o) })
}

// stampedBy reads a FluentPVC back and fails the test unless its stamp is valid and names user.
func stampedBy(t *testing.T, name, user string) *sondev1.FluentPVC {
	t.Helper()
	f := &sondev1.FluentPVC{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, f); err != nil {
		t.Fatal(err)
	}
	if claim, err := stamp.VerifyFluentPVC(stampKey, f); err != nil || claim.Requester.Username != user {
		t.Errorf("stamp of %q: %v, want one of %s", claim.Requester.Username, err, user)
	}
	return f
}

func TestFluentPVCSamples(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	fluentPVCUsers(t)
	t.Run("as the source prints it", func(t *testing.T) {
		err := as(t, fluentPVCDefiner).Create(t.Context(), fluentPVCObject(t, "../../webhooks/fluentpvc/testdata/seed.yaml", "fluent-pvc-sample", nil))
		answered(t, err, `spec.commonVolumes[0].name: Invalid value: "SOME_SECRET"`)
		answered(t, err, `spec.sidecarContainerTemplate.command: Invalid value: "echo sidecar": no program; write [echo, sidecar]`)
	})
	for _, mode := range []string{"Container", "Native"} {
		t.Run("corrected/"+mode, func(t *testing.T) {
			o := fluentPVCObject(t, fluentPVCSample, "fluent-pvc-sample-"+strings.ToLower(mode), map[string]any{"sidecarMode": mode})
			o.SetAnnotations(map[string]string{sondev1.AnnotationRequester: `{"v":1}`, sondev1.AnnotationStamp: "00"})
			created(t, o)
			stampedBy(t, o.GetName(), fluentPVCDefiner)
		})
	}
	t.Run("as docs/fluentpvc.md prints it", func(t *testing.T) {
		found := 0
		for page, text := range texts(t, "../../docs/fluentpvc.md", 1) {
			for _, printed := range objects(text) {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(printed), &o.Object); err != nil {
					t.Fatal(err)
				}
				if err := as(t, fluentPVCDefiner).Create(t.Context(), o, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", page, err)
				}
				found++
			}
		}
		if found == 0 {
			t.Error("the page has no FluentPVC")
		}
	})
	t.Run("values in other forms", func(t *testing.T) {
		o := fluentPVCObject(t, fluentPVCSample, "forms", map[string]any{"finalizer": map[string]any{"backoff": "30"}})
		for path, value := range map[string]any{
			"pvcSpecTemplate.resources.requests.storage":         "1024Mi",
			"sidecarContainerTemplate.resources.limits.cpu":      "1000m",
			"sidecarContainerTemplate.resources.requests":        map[string]any{"cpu": 0.5, "memory": int64(1073741824)},
			"sidecarContainerTemplate.livenessProbe":             map[string]any{"httpGet": map[string]any{"port": "http", "path": "/?a=1&b=<2>"}},
			"sidecarContainerTemplate.ports":                     []any{map[string]any{"containerPort": int64(80), "name": "http"}},
			"pvcFinalizerJobSpecTemplate.backoffLimit":           int64(0),
			"pvcFinalizerJobSpecTemplate.template.metadata":      map[string]any{"creationTimestamp": nil, "labels": map[string]any{}},
			"pvcFinalizerJobSpecTemplate.template.spec.hostname": "é"[:0],
		} {
			if err := unstructured.SetNestedField(o.Object, value, append([]string{"spec"}, strings.Split(path, ".")...)...); err != nil {
				t.Fatal(err)
			}
		}
		created(t, o)
		f := stampedBy(t, "forms", fluentPVCDefiner)
		if got := f.Spec.PVCSpecTemplate.Resources.Requests[corev1.ResourceStorage]; got.Cmp(resource.MustParse("1Gi")) != 0 {
			t.Errorf("storage is %s", &got)
		}
	})
	noneLeft(t)
}

// noneLeft fails the test if a dry run has left an object.
func noneLeft(t *testing.T) {
	t.Helper()
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &batchv1.JobList{}, &corev1.PodList{}} {
		if err := admin.List(t.Context(), list, client.InNamespace(operatorNamespace)); err != nil {
			t.Fatal(err)
		}
		if n := apimeta.LenList(list); n > 0 {
			t.Errorf("%T has %d items after dry runs", list, n)
		}
	}
}

// TestFluentPVCRefusals: what the webhook, or the API server for it, refuses.
func TestFluentPVCRefusals(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	fluentPVCUsers(t)
	job := func(path string, value any) map[string]any {
		return map[string]any{"pvcFinalizerJobSpecTemplate." + path: value}
	}
	sidecar := func(path string, value any) map[string]any {
		return map[string]any{"sidecarContainerTemplate." + path: value}
	}
	const inJob = "spec.pvcFinalizerJobSpecTemplate."
	for name, tc := range map[string]struct {
		user   string // the definer if empty
		fields map[string]any
		want   []string
	}{
		"without the verb": {
			user: fluentPVCWriter,
			want: []string{`user "fluentpvc-writer" lacks the verb inject on pods in all namespaces`, "kubectl create clusterrolebinding NAME --clusterrole=sonde-inject --user=fluentpvc-writer"},
		},
		"an unknown field": {fields: sidecar("imagee", "x"), want: []string{`unknown field "spec.sidecarContainerTemplate.imagee"`}},
		"hostNetwork":      {fields: job("template.spec.hostNetwork", true), want: []string{"hostNetwork=true"}},
		"a hostPath":       {fields: map[string]any{"commonVolumes": []any{map[string]any{"name": "some-secret", "hostPath": map[string]any{"path": "/"}}}}, want: []string{"hostPath volumes"}},
		"privileged":       {fields: sidecar("securityContext", map[string]any{"privileged": true}), want: []string{"securityContext.privileged=true"}},

		// Only the API server knows these.
		"no image":                 {fields: sidecar("image", ""), want: []string{"spec.sidecarContainerTemplate.image: Required value"}},
		"no image of the Job":      {fields: job("template.spec.containers", []any{map[string]any{"name": "c"}}), want: []string{inJob + "template.spec.containers[0].image: Required value"}},
		"a Job without containers": {fields: job("template.spec.containers", []any{}), want: []string{inJob + "template.spec.containers: Required value"}},
		"a bad backoffLimit":       {fields: job("backoffLimit", int64(-1)), want: []string{inJob + "backoffLimit: Invalid value"}},
		"a bad label":              {fields: job("template.metadata.labels", map[string]any{"a b": "c"}), want: []string{"request: " + inJob + "template.metadata.labels: Invalid value"}},
		"a limit below a request": {
			fields: sidecar("resources", map[string]any{"limits": map[string]any{"cpu": "1"}, "requests": map[string]any{"cpu": "2"}}), want: []string{"spec.sidecarContainerTemplate.resources.requests: Invalid value"},
		},
		"no size":                  {fields: map[string]any{"pvcSpecTemplate.resources": map[string]any{}}, want: []string{"spec.pvcSpecTemplate.resources[storage]: Required value"}},
		"an unknown access mode":   {fields: map[string]any{"pvcSpecTemplate.accessModes": []any{"Once"}}, want: []string{"spec.pvcSpecTemplate.accessModes: Unsupported value"}},
		"a volume of two sources":  {fields: map[string]any{"commonVolumes": []any{map[string]any{"name": "some-secret", "emptyDir": map[string]any{}, "secret": map[string]any{"secretName": "s"}}}}, want: []string{"spec.commonVolumes[0].secret: Forbidden"}},
		"a path that leaves":       {fields: map[string]any{"commonVolumeMounts": []any{map[string]any{"name": "some-secret", "mountPath": "/s", "subPath": "../x"}}}, want: []string{"request: spec.commonVolumeMounts.subPath: Invalid value"}},
		"a variable of nothing":    {fields: map[string]any{"commonEnvs": []any{map[string]any{"name": "A", "value": "a", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}}}}}, want: []string{"spec.commonEnvs[0].valueFrom: Invalid value"}},
		"a probe of a native only": {fields: joined(sidecar("lifecycle", map[string]any{"preStop": map[string]any{}}), map[string]any{"sidecarMode": "Native"}), want: []string{"spec.sidecarContainerTemplate.lifecycle.preStop: Required value"}},
		"two problems": {
			fields: joined(sidecar("image", ""), map[string]any{"pvcSpecTemplate.resources": map[string]any{}}),
			want:   []string{"2 problems: ", "spec.pvcSpecTemplate.resources[storage]: Required value", "; spec.sidecarContainerTemplate.image: Required value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := fluentPVCObject(t, fluentPVCSample, "refused", nil)
			for path, value := range tc.fields {
				if err := unstructured.SetNestedField(o.Object, value, append([]string{"spec"}, strings.Split(path, ".")...)...); err != nil {
					t.Fatal(err)
				}
			}
			user := fluentPVCDefiner
			if tc.user != "" {
				user = tc.user
			}
			err := as(t, user).Create(t.Context(), o)
			for _, want := range tc.want {
				answered(t, err, want)
			}
			t.Logf("%.400v", err)
		})
	}
	t.Run("a generated name", func(t *testing.T) {
		o := fluentPVCObject(t, fluentPVCSample, "", nil)
		o.SetGenerateName("logs-")
		answered(t, as(t, fluentPVCDefiner).Create(t.Context(), o), "generateName does not work")
	})
	noneLeft(t)
}

// TestFluentPVCDryRunsIgnoreQuota: a quota of the operator's namespace says nothing about those of Pods.
func TestFluentPVCDryRunsIgnoreQuota(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/jobs.batch": resource.MustParse("0"), "persistentvolumeclaims": resource.MustParse("0"),
	}}}
	if err := admin.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), quota) })
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{"count/jobs.batch": resource.MustParse("0"), "persistentvolumeclaims": resource.MustParse("0")}
	if err := admin.Status().Update(t.Context(), quota); err != nil { // no controller manager runs here
		t.Fatal(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "x"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	poll(t, "quota in force", func() bool {
		err := admin.Create(t.Context(), claim.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	})
	answered(t, admin.Create(t.Context(), fluentPVCObject(t, fluentPVCSample, "quota", nil), client.DryRunAll), "")
}

func TestFluentPVCUpdates(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	fluentPVCUsers(t)
	created(t, fluentPVCObject(t, fluentPVCSample, "mine", nil))
	change := func(user string, change func(*sondev1.FluentPVC)) error {
		f := &sondev1.FluentPVC{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "mine"}, f); err != nil {
			t.Fatal(err)
		}
		change(f)
		return as(t, user).Update(t.Context(), f)
	}
	image := func(to string) func(*sondev1.FluentPVC) {
		return func(f *sondev1.FluentPVC) { f.Spec.SidecarContainerTemplate.Image = to }
	}
	const refused = "lacks the verb inject on pods in all namespaces"

	answered(t, change(fluentPVCWriter, func(f *sondev1.FluentPVC) { f.Labels = map[string]string{"team": "a"} }), "")
	stampedBy(t, "mine", fluentPVCDefiner)
	answered(t, change(fluentPVCWriter, image("evil")), refused)
	answered(t, change(fluentPVCSecond, image("")), "spec.sidecarContainerTemplate.image: Required value")
	stampedBy(t, "mine", fluentPVCDefiner)
	answered(t, change(fluentPVCSecond, image("better")), "")
	f := stampedBy(t, "mine", fluentPVCSecond)

	for name, forge := range map[string]func(*sondev1.FluentPVC){
		"another stamp":     func(f *sondev1.FluentPVC) { f.Annotations[sondev1.AnnotationStamp] = "00" },
		"another requester": func(f *sondev1.FluentPVC) { f.Annotations[sondev1.AnnotationRequester] = "{}" },
		"no stamp":          func(f *sondev1.FluentPVC) { delete(f.Annotations, sondev1.AnnotationStamp) },
		"no annotations":    func(f *sondev1.FluentPVC) { f.Annotations = nil },
	} {
		answered(t, change(fluentPVCWriter, forge), refused)
		if t.Failed() {
			t.Fatalf("%s: see above", name)
		}
	}
	answered(t, change(fluentPVCDefiner, func(f *sondev1.FluentPVC) { f.Annotations = nil }), "")
	stampedBy(t, "mine", fluentPVCDefiner)

	t.Run("a copied stamp", func(t *testing.T) {
		forged := fluentPVCObject(t, fluentPVCSample, "copy", nil)
		copied := maps.Clone(f.Annotations)
		forged.SetAnnotations(copied)
		answered(t, as(t, fluentPVCWriter).Create(t.Context(), forged), refused)
		other := f.DeepCopy()
		other.Name = "copy"
		if _, err := stamp.VerifyFluentPVC(stampKey, other); err == nil {
			t.Error("a stamp is valid for a FluentPVC of another name")
		}
	})
	answered(t, as(t, fluentPVCWriter).Delete(t.Context(), f), "")
}
