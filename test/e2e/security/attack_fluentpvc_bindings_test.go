//go:build e2e

package security

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// collector is a user whom the policy sonde-fluentpvc exempts. With its name a control shows what the policy prevents.
const collector = "system:serviceaccount:kube-system:generic-garbage-collector"

// tenant is a namespace whose Pods may have FluentPVCs, and a FluentPVC of its own.
type tenant struct {
	ns string
	f  *sondev1.FluentPVC
}

// newTenant makes a tenant. change may be nil.
func newTenant(t *testing.T, change func(*sondev1.FluentPVCSpec)) tenant {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	return tenant{ns: ns, f: cluster.FluentPVC(t, ns, change)}
}

// waiter returns a Pod that names the FluentPVC and is never scheduled. The operator makes its binding and its claim.
func (n tenant) waiter(name string) *corev1.Pod {
	p := cluster.WriterPod(n.ns, name, n.f, "-stay")
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e/attack"}}
	return p
}

// bound creates a Pod as a user, and waits for its binding.
func bound(t *testing.T, by client.Client, p *corev1.Pod) *sondev1.FluentPVCBinding {
	t.Helper()
	cluster.CreateEventually(t, by, p)
	return cluster.AwaitBinding(t, p.Namespace, cluster.ClaimOf(t, p), sondev1.BindingReady, time.Minute)
}

// ownClaim returns a claim of a user's own.
func ownClaim(ns, name string, labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(cluster.StorageClass),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// The attacker has every right on bindings and claims that RBAC can give, as OLM gives to the admins of a namespace: the policy
// alone refuses. They try to lose data that no Job has processed, or to forge its state.
func TestAttackFluentPVCBindings(t *testing.T) {
	n := newTenant(t, nil)
	cluster.Bind(t, n.ns, "mallory", "admin")
	allow(t, n.ns, userSubject("mallory"), rbacv1.PolicyRule{
		APIGroups: []string{sondev1.GroupVersion.Group}, Resources: []string{"fluentpvcbindings", "fluentpvcbindings/status"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	}, rbacv1.PolicyRule{
		// OpenShift requires "delete" of the subresource for setting an owner by it.
		APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims/status"}, Verbs: []string{"update", "patch", "delete"},
	})
	mallory := cluster.As(t, "mallory")
	p := n.waiter("writer")
	b := bound(t, cluster.Admin, p)
	c := ownClaim(n.ns, b.Name, nil)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: n.ns, Name: "owner"}}
	mine := ownClaim(n.ns, "mine", nil)
	for _, o := range []client.Object{owner, mine} {
		cluster.CreateEventually(t, mallory, o)
	}
	owned := metadata(t, "ownerReferences", []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
	cluster.Eventually(t, 15*time.Second, "the rights in force", func(ctx context.Context) error {
		return mallory.Patch(ctx, b.DeepCopy(), mergePatch(annotation("retry", "1")), client.DryRunAll)
	})
	for _, o := range []client.Object{b, c} {
		t.Run("protected: "+fmt.Sprintf("%T", o), func(t *testing.T) { losing(t, mallory, o, owned) })
	}
	t.Run("protected: a binding", func(t *testing.T) { forging(t, mallory, b) })
	t.Run("protected: a claim", func(t *testing.T) {
		for name, patch := range map[string]string{
			"no labels":             `{"metadata":{"labels":null}}`,
			"another Pod":           metadata(t, "labels", map[string]string{sondev1.LabelTargetPodUID: "x"}),
			"another Pod's name":    metadata(t, "annotations", map[string]string{sondev1.AnnotationTargetPod: "x"}),
			"another binding":       metadata(t, "annotations", map[string]string{sondev1.AnnotationOwner: n.ns + "/x"}),
			"no name of FluentPVC":  `{"metadata":{"annotations":{"` + sondev1.AnnotationClaim + `":null}}}`,
			"an owner":              owned,
			"a mark for our claims": `{"metadata":{"labels":{"` + sondev1.LabelKind + `":"x"}}}`,
		} {
			wantRefusal(t, name, mallory.Patch(t.Context(), c.DeepCopy(), mergePatch(patch)), "only Sonde changes")
			wantRefusal(t, name+", by the status", mallory.Status().Patch(t.Context(), c.DeepCopy(), mergePatch(patch)), "only Sonde changes")
		}
	})
	t.Run("the garbage collector", func(t *testing.T) {
		if err := mallory.Patch(t.Context(), mine, mergePatch(owned)); err != nil {
			t.Fatal(err)
		}
		if err := mallory.Delete(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		cluster.Gone(t, mine, time.Minute) // the control: this claim took the owner
		stay(t, b, c)
	})
	t.Run("discard", func(t *testing.T) { discarding(t, mallory, p, b) })
}

// losing tries to have an object deleted.
func losing(t *testing.T, mallory client.Client, o client.Object, owned string) {
	t.Helper()
	named := func() client.Object { return o.DeepCopyObject().(client.Object) }
	list := named()
	list.SetName("")
	apply := fmt.Sprintf(`{"apiVersion":"v1","kind":"PersistentVolumeClaim",%s`, owned[1:])
	if _, ok := o.(*sondev1.FluentPVCBinding); ok {
		apply = fmt.Sprintf(`{"apiVersion":%q,"kind":"FluentPVCBinding",%s`, sondev1.GroupVersion.String(), owned[1:])
	}
	const changes, deletes = "only Sonde changes", "kubectl sonde fluentpvc discard"
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"deletes":                   {mallory.Delete(t.Context(), named()), deletes},
		"deletes at once":           {mallory.Delete(t.Context(), named(), client.GracePeriodSeconds(0)), deletes},
		"deletes in the foreground": {mallory.Delete(t.Context(), named(), client.PropagationPolicy(metav1.DeletePropagationForeground)), deletes},
		"deletes and orphans":       {mallory.Delete(t.Context(), named(), client.PropagationPolicy(metav1.DeletePropagationOrphan)), deletes},
		"deletes all of its name": {mallory.DeleteAllOf(t.Context(), list, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{"metadata.name": o.GetName()}), deletes},
		"adds an owner":         {mallory.Patch(t.Context(), named(), mergePatch(owned)), changes},
		"applies an owner":      {mallory.Patch(t.Context(), named(), client.RawPatch(types.ApplyPatchType, []byte(apply)), client.FieldOwner("mallory"), client.ForceOwnership), changes},
		"an owner that is gone": {mallory.Patch(t.Context(), named(), mergePatch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`)), changes},
	} {
		wantRefusal(t, name, tc.err, tc.want)
	}
	stay(t, o)
}

// forging tries to change what a binding says, or to make one.
func forging(t *testing.T, mallory client.Client, b *sondev1.FluentPVCBinding) {
	t.Helper()
	another := &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "forged"}, Spec: b.Spec}
	wantRefusal(t, "creates", mallory.Create(t.Context(), another), "only Sonde creates FluentPVCBindings")
	applied := another.DeepCopy()
	applied.SetGroupVersionKind(sondev1.GroupVersion.WithKind("FluentPVCBinding"))
	text, err := json.Marshal(applied)
	if err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "applies", mallory.Patch(t.Context(), another, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner("mallory")), "only Sonde creates FluentPVCBindings")
	for _, phase := range []sondev1.BindingPhase{sondev1.BindingFinalizerJobSucceeded, sondev1.BindingDiscarded} {
		wantRefusal(t, string(phase), mallory.Status().Patch(t.Context(), b.DeepCopy(), mergePatch(`{"status":{"phase":"`+string(phase)+`"}}`)), "only Sonde changes")
	}
	for name, patch := range map[string]string{
		"another Pod":      `{"spec":{"pod":{"name":"other"}}}`,
		"another template": `{"spec":{"template":{"retention":"1h"}}}`,
		"a finalizer":      metadata(t, "finalizers", []string{"example.com/held"}),
		"a label":          metadata(t, "labels", map[string]string{"a": "b"}),
		"an annotation":    annotation("x", "1"),
	} {
		if err := mallory.Patch(t.Context(), b.DeepCopy(), mergePatch(patch)); err == nil || !strings.Contains(err.Error(), "only Sonde changes") && !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	// The manager has all bindings in its memory.
	for _, key := range []string{"retry", "discard"} {
		wantRefusal(t, "a long "+key, mallory.Patch(t.Context(), b.DeepCopy(), mergePatch(annotation(key, strings.Repeat("x", 100<<10)))), "at most 256 characters")
	}
}

// discarding: retry needs the right to change bindings, and discard also the right to delete claims.
func discarding(t *testing.T, mallory client.Client, p *corev1.Pod, b *sondev1.FluentPVCBinding) {
	t.Helper()
	for user, role := range map[string]string{"vera": "view", "rita": "sonde-edit"} {
		cluster.Bind(t, b.Namespace, user, role)
	}
	allow(t, b.Namespace, userSubject("rita"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "patch"}})
	rita := cluster.As(t, "rita")
	cluster.Eventually(t, 15*time.Second, "control: retry without the right to delete claims", func(ctx context.Context) error {
		c := ownClaim(b.Namespace, b.Name, nil)
		return errors.Join(rita.Patch(ctx, b.DeepCopy(), mergePatch(annotation("retry", "2"))), rita.Patch(ctx, c, mergePatch(`{"metadata":{"labels":{"a":"b"}}}`)))
	})
	discard := mergePatch(annotation("discard", "1"))
	const need = "you need the right to delete the PersistentVolumeClaim"
	wantRefusal(t, "without the right", rita.Patch(t.Context(), b.DeepCopy(), discard), need)
	wantRefusal(t, "without the right, on the claim", rita.Patch(t.Context(), ownClaim(b.Namespace, b.Name, nil), discard), need)
	wantForbidden(t, cluster.As(t, "vera").Patch(t.Context(), b.DeepCopy(), mergePatch(annotation("retry", "3"))), `cannot patch resource "fluentpvcbindings"`)
	stay(t, b)
	// The control: who may delete claims may give the data up.
	if err := mallory.Patch(t.Context(), b.DeepCopy(), discard); err != nil {
		t.Fatal(err)
	}
	cluster.DeleteNow(t, p)
	cluster.Gone(t, &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name}}, time.Minute)
	cluster.Gone(t, ownClaim(b.Namespace, b.Name, nil), time.Second)
}

// stay asserts that objects exist and are not being deleted.
func stay(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		live := o.DeepCopyObject().(client.Object)
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil || !live.GetDeletionTimestamp().IsZero() || len(live.GetOwnerReferences()) > 0 {
			t.Errorf("%T %s: %v, deleted at %v, owners %v; want it kept", o, o.GetName(), err, live.GetDeletionTimestamp(), live.GetOwnerReferences())
		}
	}
}

func mergePatch(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

// metadata returns a patch of one field of the metadata.
func metadata(t *testing.T, field string, value any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// annotation returns a patch of an annotation of Sonde.
func annotation(key, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, sondev1.GroupVersion.Group+"/"+key, value)
}

// wantRefusal fails unless err contains want.
func wantRefusal(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want a refusal that contains %q", what, err, want)
	}
}
