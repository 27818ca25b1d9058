//go:build e2e

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/test/cluster"
)

const attackPatience = 3 * time.Minute

// A tenant tries to have a release in a namespace where they have no rights, by each field that names one.
func TestAttackCollectorNamespaces(t *testing.T) {
	mine, theirs := cluster.OpenedNamespace(t), cluster.OpenedNamespace(t)
	cluster.Bind(t, mine, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	collector := func(home, reference string) *sondev1.Collector {
		c := cluster.NewCollector(t, home, nil)
		c.Spec.Tenant.Reference = reference
		c.Spec.Suspend = true // the control needs no release
		return c
	}
	t.Run("control: their own namespace", func(t *testing.T) {
		c := collector(mine, mine)
		cluster.CreateEventually(t, mallory, c)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "False", sondev1.ReasonSuspended, attackPatience)
		if err := mallory.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	})
	for name, c := range map[string]*sondev1.Collector{
		"another tenant's, by tenant.reference": collector(mine, theirs),
		"another tenant's, in upper case":       collector(mine, strings.ToUpper(theirs)),
		"kube-system, by tenant.reference":      collector(mine, "kube-system"),
		"the operator's, by tenant.reference":   collector(mine, cluster.OperatorNamespace),
		"another tenant's, by its own":          collector(theirs, theirs),
		"kube-system, by its own":               collector("kube-system", "kube-system"),
		"the operator's, by its own":            collector(cluster.OperatorNamespace, mine),
	} {
		t.Run("protected: "+name, func(t *testing.T) {
			if err := mallory.Create(t.Context(), c); !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want Forbidden", err)
			}
		})
	}
}

// A user of a hub tries to remove the releases of other users' Collectors there.
func TestAttackCollectorOfAHub(t *testing.T) {
	hub := cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	mine, theirs := cluster.OpenedNamespace(t), cluster.OpenedNamespace(t)
	cluster.Bind(t, mine, "mallory", "admin")
	cluster.Bind(t, hub, "mallory", "sonde-edit")
	mallory := cluster.As(t, "mallory")
	collector := func(by client.Client, reference string) *sondev1.Collector {
		c := cluster.NewCollector(t, hub, nil)
		c.Name, c.Spec.Tenant.Reference, c.Spec.Suspend = "for-"+reference, reference, true
		cluster.CreateEventually(t, by, c)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "False", sondev1.ReasonSuspended, attackPatience)
		return c
	}
	target := collector(cluster.Admin, theirs)
	t.Run("control: their own Collector", func(t *testing.T) {
		if err := mallory.Delete(t.Context(), collector(mallory, mine)); err != nil {
			t.Fatal(err)
		}
	})
	owner := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`))
	retry := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+sondev1.AnnotationRetry+`":"1"}}}`))
	finalizer := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/held"]}}`))
	for name, attack := range map[string]func() error{
		"deletion":     func() error { return mallory.Delete(t.Context(), target.DeepCopy()) },
		"all deleted":  func() error { return mallory.DeleteAllOf(t.Context(), &sondev1.Collector{}, client.InNamespace(hub)) },
		"a lost owner": func() error { return mallory.Patch(t.Context(), target.DeepCopy(), owner) },
		"a finalizer":  func() error { return mallory.Patch(t.Context(), target.DeepCopy(), finalizer) },
		"a retry":      func() error { return mallory.Patch(t.Context(), target.DeepCopy(), retry) },
	} {
		t.Run("protected: "+name, func(t *testing.T) {
			if err := attack(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "right to create Jobs") {
				t.Errorf("error %v, want Forbidden with the right that is missing", err)
			}
		})
	}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil || !target.DeletionTimestamp.IsZero() {
		t.Errorf("the Collector is deleted at %v, %v", target.DeletionTimestamp, err)
	}
}

// A tenant's chart tries to write outside of the tenant's namespace, to get more rights, and to exhaust the releaser.
func TestAttackCollectorCharts(t *testing.T) {
	mine, theirs := cluster.OpenedNamespace(t), cluster.Namespace(t, nil)
	in := func(namespace, name string) string {
		return strings.Replace(cluster.ConfigMapTemplate(name, "attack"), "metadata: {", "metadata: {namespace: "+namespace+", ", 1)
	}
	binding := func(kind, role string) string {
		return fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: {name: attack-%s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}\nsubjects: [{kind: ServiceAccount, name: sonde-releaser, namespace: %[4]s}]\n", kind, mine, role, mine)
	}
	attacks := map[string]struct {
		template, reason string
		object           client.Object // must not exist
	}{
		"a ClusterRoleBinding":                {binding("ClusterRoleBinding", "cluster-admin"), release.ReasonScopeRefused, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "attack-" + mine}}},
		"a RoleBinding with more rights":      {binding("RoleBinding", "cluster-admin"), release.ReasonForbidden, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "attack-" + mine}}},
		"another namespace":                   {in(theirs, "attack"), release.ReasonScopeRefused, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "attack"}}},
		"kube-system":                         {in("kube-system", "attack"), release.ReasonScopeRefused, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "attack"}}},
		"another namespace, by a value":       {in("{{ .Values.where }}", "attack-value"), release.ReasonScopeRefused, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "attack-value"}}},
		"another namespace, by a hook":        {strings.Replace(in(theirs, "attack-hook"), "metadata: {", "metadata: {annotations: {helm.sh/hook: pre-upgrade}, ", 1), release.ReasonScopeRefused, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "attack-hook"}}},
		"a namespace":                         {"apiVersion: v1\nkind: Namespace\nmetadata: {name: attack-" + mine + "}\n", release.ReasonScopeRefused, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "attack-" + mine}}},
		"the ConfigMap that owns the release": {cluster.ConfigMapTemplate("sonde-collector-shop-prod", "attack"), release.ReasonScopeRefused, nil},
	}
	archives, versions, number := map[string][]byte{}, map[string]string{}, 0
	pack := func(name, template string) {
		number++
		versions[name] = fmt.Sprintf("1.%d.0", number)
		archives[versions[name]], _ = cluster.PackChart(t, "shop", versions[name], map[string]string{"a": template})
	}
	pack("control", cluster.ConfigMapTemplate("control", "works"))
	pack("2 GB", `text: {{ repeat 1000 (repeat 2000000 "x") }}`)
	for name, attack := range attacks {
		pack(name, attack.template)
	}
	repository := cluster.NewRepository(t, mine, archives)
	c := &sondev1.Collector{
		ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "mine"},
		Spec: sondev1.CollectorSpec{
			Collector: sondev1.CollectorRelease{Name: "shop", Version: versions["control"]}, Tenant: sondev1.CollectorTenant{Reference: mine, Instance: "prod"},
			Chart:   &sondev1.CollectorChart{Source: sondev1.ChartHTTP, URL: "https://" + repository.Host, CABundle: repository.CA, SecretRef: &sondev1.CollectorSecretReference{Name: repository.Credentials}},
			Upgrade: &sondev1.CollectorAction{Retries: new(int32(0))},
		},
	}
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", attackPatience)
	cluster.AwaitConfigMap(t, mine, "control", "works", time.Second)
	try := func(name string) {
		cluster.ChangeCollector(t, c, func(s *sondev1.CollectorSpec) {
			s.Collector.Version = versions[name]
			s.Values = cluster.Values(t, map[string]any{"where": theirs})
		})
	}
	for name, attack := range attacks {
		t.Run("protected: "+name, func(t *testing.T) {
			try(name)
			cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", attack.reason, attackPatience)
			if attack.object == nil {
				return
			}
			if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(attack.object), attack.object); !apierrors.IsNotFound(err) {
				t.Errorf("the object exists, or %v", err)
			}
		})
	}
	t.Run("protected: a template that expands to 2 GB", func(t *testing.T) {
		captureBeside(t, theirs, func() {
			try("2 GB")
			stalled := cluster.AwaitCollector(t, c, sondev1.ConditionStalled, "True", release.ReasonReleaserFailed, attackPatience)
			if !strings.Contains(stalled.Message, "more memory than the releaser has") {
				t.Errorf("message %q", stalled.Message)
			}
		})
	})
	t.Run("control: the chart of before works again", func(t *testing.T) {
		try("control")
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", attackPatience)
	})
}

// A tenant has 20 suspended Collectors, and writes Jobs that never end and look like those of their first runs, to take all places.
func TestAttackCollectorPlaces(t *testing.T) {
	const places = 20
	mine, theirs, control := cluster.OpenedNamespace(t), cluster.OpenedNamespace(t), cluster.OpenedNamespace(t)
	cluster.Bind(t, mine, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	released := func(t *testing.T, ns string) {
		t.Helper()
		c := cluster.NewCollector(t, ns, map[string]any{"persistence": map[string]any{"enabled": false}})
		cluster.Create(t, c)
		cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", attackPatience)
	}
	t.Run("control: a Collector before", func(t *testing.T) { released(t, control) })
	for i := range places {
		c := cluster.NewCollector(t, mine, nil)
		c.Name, c.Spec.Tenant.Instance, c.Spec.Suspend = fmt.Sprint("mine-", i), fmt.Sprint("i", i), true
		cluster.Create(t, c)
		pod := cluster.PodSpec("idle")
		pod.RestartPolicy = corev1.RestartPolicyNever
		cluster.CreateEventually(t, mallory, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: mine, Name: fmt.Sprintf("sonde-%s-%s-1", c.ReleaseName(), naming.Short(c.UID)),
				Labels: map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: string(c.UID)},
				Annotations: map[string]string{
					sondev1.AnnotationOwner: naming.Owner(c), "monitoring.openshift.tpg/run": "1", "monitoring.openshift.tpg/generation": "1",
				},
			},
			Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: pod}},
		})
		cluster.Eventually(t, attackPatience, "the Collector follows the Job", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			if c.Status.Job == "" {
				return fmt.Errorf("status %+v", c.Status)
			}
			return nil
		})
	}
	t.Run("protected: another tenant's Collector", func(t *testing.T) { released(t, theirs) })
}

// captureBeside captures another tenant's packets while something happens, and counts them.
func captureBeside(t *testing.T, ns string, happen func()) {
	t.Helper()
	sink := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	cluster.AwaitCapturing(t, pc)
	cluster.Send(t, sender, cluster.UDPAddr(sink.Status.PodIP), 1, 500)
	happen()
	cluster.Send(t, sender, cluster.UDPAddr(sink.Status.PodIP), 2, 500)
	cluster.Stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("the capture of another tenant: %+v", pc.Status)
	}
	got := cluster.Download(t, pc)[sink.Name]
	for run := uint32(1); run <= 2; run++ {
		if different, n := got.Count(run); different != 500 || n != 500 {
			t.Errorf("run %d: %d numbers in %d packets, want 500", run, different, n)
		}
	}
}
