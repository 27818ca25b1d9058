//go:build api

package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// Users of these tests. RBAC allows them every request that is tried here, except for deletions by the annotator: only the
// policy refuses. OLM gives such rights on bindings to the admins of a namespace.
const (
	claimManager   = "system:serviceaccount:" + operatorNamespace + ":sonde-manager"
	claimAdmin     = "claim-admin"
	claimAnnotator = "claim-annotator" // may not delete claims
	otherManager   = "system:serviceaccount:shop:sonde-manager"
	collector      = "system:serviceaccount:kube-system:generic-garbage-collector"
	terminator     = "system:serviceaccount:kube-system:namespace-controller"
	binder         = "system:serviceaccount:kube-system:persistent-volume-binder"
	anyController  = "system:kube-controller-manager"
)

// TestClaimPolicy sends each kind of request to a real API server, as users, as the manager and as the controllers of a
// cluster. Each refusal has a control that passes.
func TestClaimPolicy(t *testing.T) {
	ns := claimUsers(t)
	protectClaims(t)
	t.Run("bindings", func(t *testing.T) { policyOnBindings(t, ns) })
	t.Run("claims", func(t *testing.T) { policyOnClaims(t, ns) })
	t.Run("the CRD is deleted with a live binding", deleteCRD)
}

func policyOnBindings(t *testing.T, ns string) {
	t.Helper()
	const (
		creates = "only Sonde creates FluentPVCBindings"
		changes = "only Sonde changes FluentPVCBindings. To process the data again, run: kubectl sonde fluentpvc retry bound -n "
		deletes = "To give the data up, run: kubectl sonde fluentpvc discard bound -n "
		noRight = "you need the right to delete the PersistentVolumeClaim bound in namespace "
	)
	b := boundBinding(ns, "bound")
	if err := as(t, claimManager).Create(t.Context(), b); err != nil {
		t.Fatalf("the manager cannot create a binding: %v", err)
	}
	create := func(c client.Client) error { return c.Create(t.Context(), boundBinding(ns, "forged")) }
	status := func(c client.Client) error {
		return c.Status().Patch(t.Context(), b.DeepCopy(), merge(`{"status":{"phase":"Ready"}}`))
	}
	owner := patching(t, b, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`)
	finalizer := patching(t, b, `{"metadata":{"finalizers":["example.com/held"]}}`)
	retry := patching(t, b, `{"metadata":{"annotations":{"`+sondev1.AnnotationRetry+`":"1"}}}`)
	discard := patching(t, b, `{"metadata":{"annotations":{"`+sondev1.AnnotationDiscard+`":"1"}}}`)
	remove := func(c client.Client) error { return c.Delete(t.Context(), b.DeepCopy()) }
	foreground := func(c client.Client) error {
		return c.Delete(t.Context(), b.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	removeAll := func(c client.Client) error {
		return c.DeleteAllOf(t.Context(), &sondev1.FluentPVCBinding{}, client.InNamespace(ns))
	}
	tryAll(t, map[string]attempt{
		"admin creates":                         {claimAdmin, create, creates},
		"another namespace's manager creates":   {otherManager, create, creates},
		"controller creates":                    {anyController, create, creates},
		"manager creates":                       {claimManager, create, ""},
		"admin changes the spec":                {claimAdmin, patching(t, b, `{"spec":{"pod":{"name":"web-2"}}}`), "a FluentPVCBinding is immutable"},
		"admin changes the status":              {claimAdmin, status, changes + ns},
		"manager changes the status":            {claimManager, status, ""},
		"admin changes a label":                 {claimAdmin, patching(t, b, `{"metadata":{"labels":{"kept":"no"}}}`), changes},
		"admin adds a label":                    {claimAdmin, patching(t, b, `{"metadata":{"labels":{"a":"b"}}}`), changes},
		"admin removes all labels":              {claimAdmin, patching(t, b, `{"metadata":{"labels":null}}`), changes},
		"admin adds an empty annotation":        {claimAdmin, patching(t, b, `{"metadata":{"annotations":{"a":""}}}`), changes},
		"admin changes an annotation":           {claimAdmin, patching(t, b, `{"metadata":{"annotations":{"kept":"no"}}}`), changes},
		"admin removes all annotations":         {claimAdmin, patching(t, b, `{"metadata":{"annotations":null}}`), changes},
		"admin adds an owner":                   {claimAdmin, owner, changes},
		"manager adds an owner":                 {claimManager, owner, ""},
		"admin adds a finalizer":                {claimAdmin, finalizer, changes},
		"garbage collector adds a finalizer":    {collector, finalizer, ""},
		"admin writes it back unchanged":        {claimAdmin, func(c client.Client) error { return c.Update(t.Context(), b.DeepCopy()) }, ""},
		"admin annotates with retry":            {claimAdmin, retry, ""},
		"annotator annotates with retry":        {claimAnnotator, retry, ""},
		"admin annotates with retry and more":   {claimAdmin, patching(t, b, `{"metadata":{"annotations":{"`+sondev1.AnnotationRetry+`":"1","kept":"no"}}}`), changes},
		"admin annotates with discard":          {claimAdmin, discard, ""},
		"annotator annotates with discard":      {claimAnnotator, discard, noRight + ns},
		"admin annotates with a long retry":     {claimAdmin, annotating(t, b, sondev1.AnnotationRetry, strings.Repeat("1", 257)), "at most 256 characters"},
		"admin annotates with a long discard":   {claimAdmin, annotating(t, b, sondev1.AnnotationDiscard, strings.Repeat("1", 257)), "at most 256 characters"},
		"admin annotates with a shorter retry":  {claimAdmin, annotating(t, b, sondev1.AnnotationRetry, strings.Repeat("1", 256)), ""},
		"manager annotates with a long retry":   {claimManager, annotating(t, b, sondev1.AnnotationRetry, strings.Repeat("1", 257)), ""},
		"admin deletes":                         {claimAdmin, remove, deletes + ns},
		"admin deletes in the foreground":       {claimAdmin, foreground, deletes + ns},
		"admin deletes all":                     {claimAdmin, removeAll, deletes + ns},
		"manager deletes":                       {claimManager, remove, ""},
		"garbage collector deletes":             {collector, remove, ""},
		"namespace controller deletes all":      {terminator, removeAll, ""},
		"controller without account of its own": {anyController, removeAll, ""},
	})
}

func policyOnClaims(t *testing.T, ns string) {
	t.Helper()
	const (
		creates = "only Sonde creates PersistentVolumeClaims with the labels"
		changes = "only Sonde changes the owner references of this PersistentVolumeClaim"
		deletes = "To delete it with its data, run: kubectl sonde fluentpvc discard bound -n "
		noRight = "you need the right to delete the PersistentVolumeClaim"
	)
	bound, discarded := boundClaim(ns, "bound"), boundClaim(ns, "discarded")
	discarded.Annotations[sondev1.AnnotationDiscard] = "1"
	for _, o := range []client.Object{bound, discarded} {
		if err := as(t, claimManager).Create(t.Context(), o); err != nil {
			t.Fatalf("the manager cannot create a claim: %v", err)
		}
	}
	users := boundClaim(ns, "users")
	users.Labels, users.Annotations = map[string]string{sondev1.KeyFluentPVC: "logs"}, nil
	if err := as(t, claimAdmin).Create(t.Context(), users); err != nil {
		t.Fatalf("a user cannot create a claim of their own, with the label that Pods have: %v", err)
	}
	creating := func(keys ...string) func(client.Client) error {
		o := boundClaim(ns, "forged")
		labels := o.Labels
		o.Labels = map[string]string{}
		for _, key := range keys {
			o.Labels[key] = labels[key]
		}
		return func(c client.Client) error { return c.Create(t.Context(), o.DeepCopy()) }
	}
	deleting := func(o client.Object) func(client.Client) error {
		return func(c client.Client) error { return c.Delete(t.Context(), o.DeepCopyObject().(client.Object)) }
	}
	removeAll := func(c client.Client) error {
		return c.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(ns))
	}
	labelled := func(o client.Object, key, value string) func(client.Client) error {
		return patching(t, o, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value))
	}
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`
	viaStatus := func(c client.Client) error {
		return c.Status().Patch(t.Context(), bound.DeepCopy(), merge(`{"metadata":{"labels":null},"status":{"phase":"Bound"}}`))
	}
	binding := `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"},"finalizers":["kubernetes.io/pvc-protection","example.com/more"]},"spec":{"volumeName":"pv-1"}}`
	tryAll(t, map[string]attempt{
		"admin creates one of Sonde's":           {claimAdmin, creating(sondev1.LabelKind, sondev1.LabelUID), creates},
		"admin creates one with the kind":        {claimAdmin, creating(sondev1.LabelKind), creates},
		"admin creates one with the UID":         {claimAdmin, creating(sondev1.LabelUID), creates},
		"controller creates one from a template": {anyController, creating(sondev1.LabelKind, sondev1.LabelUID), creates},
		"manager creates":                        {claimManager, creating(sondev1.LabelKind, sondev1.LabelUID), ""},
		"admin creates their own":                {claimAdmin, creating(), ""},
		"admin removes the kind":                 {claimAdmin, labelled(bound, sondev1.LabelKind, "null"), changes},
		"admin changes the UID":                  {claimAdmin, labelled(bound, sondev1.LabelUID, `"b-2"`), changes},
		"admin changes the Pod's UID":            {claimAdmin, labelled(bound, sondev1.LabelTargetPodUID, `"p-2"`), changes},
		"admin removes all labels":               {claimAdmin, patching(t, bound, `{"metadata":{"labels":null}}`), changes},
		"admin removes all labels by the status": {claimAdmin, viaStatus, changes},
		"admin makes their own one of Sonde's":   {claimAdmin, labelled(users, sondev1.LabelKind, `"FluentPVCBinding"`), changes},
		"admin gives their own a UID":            {claimAdmin, labelled(users, sondev1.LabelUID, `"b-1"`), changes},
		"admin labels their own":                 {claimAdmin, labelled(users, "a", `"b"`), ""},
		"admin adds another label":               {claimAdmin, labelled(bound, "a", `"b"`), ""},
		"manager changes a label":                {claimManager, labelled(bound, sondev1.LabelUID, `"b-2"`), ""},
		"admin changes the annotated owner":      {claimAdmin, patching(t, bound, `{"metadata":{"annotations":{"`+sondev1.AnnotationOwner+`":"a/b"}}}`), changes},
		"admin changes the annotated Pod":        {claimAdmin, annotating(t, bound, sondev1.AnnotationTargetPod, "web-2"), changes},
		"admin changes the signed name":          {claimAdmin, annotating(t, bound, sondev1.AnnotationClaim, "logs/bound/00"), changes},
		"manager changes the signed name":        {claimManager, annotating(t, bound, sondev1.AnnotationClaim, "logs/bound/00"), ""},
		"admin annotates with discard":           {claimAdmin, annotating(t, bound, sondev1.AnnotationDiscard, "1"), ""},
		"annotator annotates with discard":       {claimAnnotator, annotating(t, bound, sondev1.AnnotationDiscard, "1"), noRight},
		"annotator annotates with another":       {claimAnnotator, annotating(t, bound, "a", "b"), ""},
		"admin adds an owner":                    {claimAdmin, patching(t, bound, owner), changes},
		"admin adds an owner to their own":       {claimAdmin, patching(t, users, owner), ""},
		"manager adds an owner":                  {claimManager, patching(t, bound, owner), ""},
		"garbage collector adds an owner":        {collector, patching(t, bound, owner), ""},
		"volume controller binds it":             {binder, patching(t, bound, binding), ""},
		"volume controller sets the status": {binder, func(c client.Client) error {
			return c.Status().Patch(t.Context(), bound.DeepCopy(), merge(`{"status":{"phase":"Bound"}}`))
		}, ""},
		"admin deletes":                         {claimAdmin, deleting(bound), deletes + ns},
		"admin deletes all":                     {claimAdmin, removeAll, deletes + ns},
		"admin deletes their own":               {claimAdmin, deleting(users), ""},
		"admin deletes a discarded one":         {claimAdmin, deleting(discarded), ""},
		"annotator deletes a discarded one":     {claimAnnotator, deleting(discarded), `cannot delete resource "persistentvolumeclaims"`},
		"manager deletes":                       {claimManager, deleting(bound), ""},
		"garbage collector deletes":             {collector, deleting(bound), ""},
		"namespace controller deletes all":      {terminator, removeAll, ""},
		"controller without account of its own": {anyController, removeAll, ""},
	})
}

// deleteCRD: the API server deletes the bindings of a deleted CRD itself, past admission.
func deleteCRD(t *testing.T) {
	t.Cleanup(func() {
		_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
			ErrorIfPathMissing: true, Paths: []string{"../../config/crd/bases/monitoring.openshift.tpg_fluentpvcbindings.yaml"},
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "fluentpvcbindings.monitoring.openshift.tpg"}}
	remove(t, crd)
	gone(t, crd)
}

// attempt is a request of a user.
type attempt struct {
	user string
	try  func(c client.Client) error
	want string // part of the refusal; empty if the request passes
}

// tryAll makes each request as a dry run, so that the objects stay as they are for the next one.
func tryAll(t *testing.T, attempts map[string]attempt) {
	t.Helper()
	for name, tc := range attempts {
		t.Run(name, func(t *testing.T) {
			err := tc.try(client.NewDryRunClient(as(t, tc.user)))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused with %v, want it to pass", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want a refusal that says %q", err, tc.want)
			}
		})
	}
}

// as returns a client that impersonates a user.
func as(t *testing.T, user string) client.Client {
	t.Helper()
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	cl, err := client.New(c, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func patching(t *testing.T, o client.Object, patch string) func(client.Client) error {
	t.Helper()
	return func(c client.Client) error {
		return c.Patch(t.Context(), o.DeepCopyObject().(client.Object), merge(patch))
	}
}

func annotating(t *testing.T, o client.Object, key, value string) func(client.Client) error {
	t.Helper()
	return patching(t, o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// protectClaims puts the policy into force until the test ends, so that other tests may still create bindings.
func protectClaims(t *testing.T) {
	t.Helper()
	enforce(t, platform.ClaimPolicy(operatorNamespace), func(ctx context.Context) bool {
		return admin.Create(ctx, boundBinding(metav1.NamespaceDefault, "probe"), client.DryRunAll) != nil
	})
}

// enforce puts a policy into force until the test ends. inForce makes a request that only the policy refuses, and reports whether it is
// refused.
func enforce(t *testing.T, policy []*unstructured.Unstructured, inForce func(ctx context.Context) bool) {
	t.Helper()
	if inForce(t.Context()) {
		t.Fatal("the request is refused before there is a policy")
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, o := range policy {
			if err := admin.Delete(ctx, o); err != nil {
				t.Error(err)
			}
		}
		for begin := time.Now(); inForce(ctx); time.Sleep(50 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("the policy is in force a minute after its deletion")
			}
		}
	})
	role := ownerRole(t)
	for _, o := range policy {
		keeps(t, o, role)
	}
	poll(t, "the policy to be in force", func() bool { return inForce(t.Context()) })
}

// ownerRole returns the ClusterRole that owns the operator's objects. An earlier test may have left it. A later one creates it, so
// that a new one is deleted with the test.
func ownerRole(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platform.OwnerClusterRole}}
	err := admin.Create(t.Context(), role)
	if apierrors.IsAlreadyExists(err) {
		err = admin.Get(t.Context(), client.ObjectKeyFromObject(role), role)
	} else if err == nil {
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), role) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return role
}

// claimUsers returns a namespace in which the users have their rights.
func claimUsers(t *testing.T) string {
	t.Helper()
	ns := namespace(t, nil)
	verbs := []string{"get", "create", "update", "patch"}
	bindings := rbacv1.PolicyRule{
		APIGroups: []string{sondev1.GroupVersion.Group}, Resources: []string{"fluentpvcbindings", "fluentpvcbindings/status"}, Verbs: append([]string{"delete", "deletecollection"}, verbs...),
	}
	write := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: verbs}
	deletion := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"delete", "deletecollection"}}
	for _, name := range []string{claimManager, claimAdmin, otherManager, anyController} {
		grant(t, ns, name, bindings, write, deletion)
	}
	grant(t, ns, claimAnnotator, bindings, write)
	grant(t, ns, binder, write)
	return ns
}

// grant gives a user rights in a namespace.
func grant(t *testing.T, ns, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	m := metav1.ObjectMeta{Namespace: ns, GenerateName: "granted-"}
	role := &rbacv1.Role{ObjectMeta: m, Rules: rules}
	create(t, role)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: m, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	})
}

// boundBinding is a binding as the operator creates it.
func boundBinding(ns, name string) *sondev1.FluentPVCBinding {
	return &sondev1.FluentPVCBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"kept": "yes"}, Labels: map[string]string{"kept": "yes"}},
		Spec: sondev1.FluentPVCBindingSpec{
			FluentPVC: sondev1.ObjectReference{Name: "logs", UID: "f-1"}, Pod: sondev1.ObjectReference{Name: "web-1", UID: "p-1"},
			Template: sondev1.FluentPVCSpec{
				PVCSpecTemplate: claimSpec(),
				PVCFinalizerJobSpecTemplate: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "job", Image: "busybox"}},
				}}},
				PVCVolumeName: "logs", PVCVolumeMountPath: "/mnt/logs", SidecarContainerTemplate: corev1.Container{Name: "sidecar", Image: "busybox"},
			},
		},
	}
}

// boundClaim is a claim as the operator creates it.
func boundClaim(ns, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Annotations: map[string]string{sondev1.AnnotationOwner: ns + "/" + name},
			Labels: map[string]string{sondev1.LabelKind: "FluentPVCBinding", sondev1.LabelUID: "b-1", sondev1.LabelTargetPodUID: "p-1"},
		},
		Spec: claimSpec(),
	}
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}
