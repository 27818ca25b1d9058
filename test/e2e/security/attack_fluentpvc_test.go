//go:build e2e

package security

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A FluentPVC puts containers into other people's Pods, and starts Jobs in their namespaces. The author of the attacks below may
// inject. They try to get a node, another tenant's data, or the place of one of Sonde's own objects. Each request is a dry run, which
// passes all webhooks.
func TestAttackFluentPVCTemplates(t *testing.T) {
	good := cluster.FluentPVC(t, cluster.Namespace(t, nil), nil)
	cluster.Bind(t, "", "author", "sonde-inject")
	author := cluster.As(t, "author")
	try := func(change func(*sondev1.FluentPVCSpec)) error {
		f := &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: good.Name + "-2"}, Spec: *good.Spec.DeepCopy()}
		change(&f.Spec)
		return author.Create(t.Context(), f, client.DryRunAll)
	}
	for name, change := range harmlessTemplates {
		t.Run("control: "+name, func(t *testing.T) {
			if err := try(change); err != nil {
				t.Errorf("refused with %v, want it admitted", err)
			}
		})
	}
	for name, tc := range hostileTemplates {
		t.Run("protected: "+name, func(t *testing.T) {
			if err := try(tc.change); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a refusal that contains %q", err, tc.want)
			}
		})
	}
}

func finalizer(s *sondev1.FluentPVCSpec) *batchv1.JobSpec { return &s.PVCFinalizerJobSpecTemplate }

func finalizerPod(s *sondev1.FluentPVCSpec) *corev1.PodSpec { return &finalizer(s).Template.Spec }

// sidecarContext returns the security context of the sidecar.
func sidecarContext(s *sondev1.FluentPVCSpec) *corev1.SecurityContext {
	s.SidecarContainerTemplate.SecurityContext = &corev1.SecurityContext{}
	return s.SidecarContainerTemplate.SecurityContext
}

// finalizerContext returns the security context of the finalizer's container.
func finalizerContext(s *sondev1.FluentPVCSpec) *corev1.SecurityContext {
	finalizerPod(s).Containers[0].SecurityContext = &corev1.SecurityContext{}
	return finalizerPod(s).Containers[0].SecurityContext
}

func labelJob(key, value string) func(*sondev1.FluentPVCSpec) {
	return func(s *sondev1.FluentPVCSpec) { finalizer(s).Template.Labels = map[string]string{key: value} }
}

func annotateJob(key, value string) func(*sondev1.FluentPVCSpec) {
	return func(s *sondev1.FluentPVCSpec) { finalizer(s).Template.Annotations = map[string]string{key: value} }
}

// claimOfAnother is a source for a claim: data of another tenant's namespace, or, without one, of the claim's own.
func claimOfAnother(namespace *string) *corev1.TypedObjectReference {
	return &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "theirs", Namespace: namespace}
}

func commonVolume(source corev1.VolumeSource) func(*sondev1.FluentPVCSpec) {
	return func(s *sondev1.FluentPVCSpec) {
		s.CommonVolumes = []corev1.Volume{{Name: "more", VolumeSource: source}}
		s.CommonVolumeMounts = []corev1.VolumeMount{{Name: "more", MountPath: "/more", ReadOnly: true}}
	}
}

func ephemeral(namespace *string) corev1.VolumeSource {
	return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}, DataSourceRef: claimOfAnother(namespace),
		},
	}}}
}

// harmlessTemplates have the allowed form of what hostileTemplates have. Everything that they name is in the namespace of the Pod,
// whose users may name it as well.
var harmlessTemplates = map[string]func(*sondev1.FluentPVCSpec){
	"nothing more": func(*sondev1.FluentPVCSpec) {},
	"a capability of baseline": func(s *sondev1.FluentPVCSpec) {
		sidecarContext(s).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}}
	},
	"a port": func(s *sondev1.FluentPVCSpec) {
		s.SidecarContainerTemplate.Ports = []corev1.ContainerPort{{ContainerPort: 24224}}
	},
	"a label of the author":       labelJob("example.com/team", "logs"),
	"an annotation of the author": annotateJob("example.com/team", "logs"),
	"a ServiceAccount":            func(s *sondev1.FluentPVCSpec) { finalizerPod(s).ServiceAccountName = "robot" },
	"a claim of the same namespace as source": func(s *sondev1.FluentPVCSpec) {
		s.PVCSpecTemplate.DataSourceRef = claimOfAnother(nil)
	},
	"an ephemeral volume with such a source": commonVolume(ephemeral(nil)),
	"a Secret of the Pod's namespace":        commonVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "theirs"}}),
	"a token of the Pod's ServiceAccount": commonVolume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "token"}},
	}}}),
}

const noBaseline = "the pod security standard baseline does not allow it"

var hostileTemplates = map[string]struct {
	change func(*sondev1.FluentPVCSpec)
	want   string
}{
	"hostPath in commonVolumes": {commonVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), noBaseline},
	"hostPath in the finalizer": {func(s *sondev1.FluentPVCSpec) {
		finalizerPod(s).Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	}, noBaseline},
	"hostNetwork":          {func(s *sondev1.FluentPVCSpec) { finalizerPod(s).HostNetwork = true }, noBaseline},
	"hostPID":              {func(s *sondev1.FluentPVCSpec) { finalizerPod(s).HostPID = true }, noBaseline},
	"hostIPC":              {func(s *sondev1.FluentPVCSpec) { finalizerPod(s).HostIPC = true }, noBaseline},
	"privileged sidecar":   {func(s *sondev1.FluentPVCSpec) { sidecarContext(s).Privileged = new(true) }, noBaseline},
	"privileged finalizer": {func(s *sondev1.FluentPVCSpec) { finalizerContext(s).Privileged = new(true) }, noBaseline},
	"privileged init container of the finalizer": {func(s *sondev1.FluentPVCSpec) {
		finalizerContext(s).Privileged = new(true)
		finalizerPod(s).InitContainers = []corev1.Container{*finalizerPod(s).Containers[0].DeepCopy()}
		finalizerPod(s).InitContainers[0].Name = "init"
		finalizerContext(s)
	}, noBaseline},
	"host port": {func(s *sondev1.FluentPVCSpec) {
		s.SidecarContainerTemplate.Ports = []corev1.ContainerPort{{ContainerPort: 24224, HostPort: 24224}}
	}, noBaseline},
	"capability of the sidecar": {func(s *sondev1.FluentPVCSpec) {
		sidecarContext(s).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
	}, noBaseline},
	"capability of the finalizer": {func(s *sondev1.FluentPVCSpec) {
		finalizerContext(s).Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}}
	}, noBaseline},
	"unmasked /proc": {func(s *sondev1.FluentPVCSpec) { sidecarContext(s).ProcMount = new(corev1.UnmaskedProcMount) }, noBaseline},
	"no seccomp": {func(s *sondev1.FluentPVCSpec) {
		sidecarContext(s).SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}, noBaseline},
	"the probes' SELinux type": {func(s *sondev1.FluentPVCSpec) {
		sidecarContext(s).SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	}, noBaseline},
	"sysctl of the node": {func(s *sondev1.FluentPVCSpec) {
		finalizerPod(s).SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
	}, noBaseline},
	"nodeName":                         {func(s *sondev1.FluentPVCSpec) { finalizerPod(s).NodeName = "n1" }, "nodeName"},
	"label of an agent":                {labelJob(sondev1.LabelUID, "00000000-dead-4000-8000-000000000000"), "Sonde gives this key its meaning"},
	"label of Sonde's Jobs and claims": {labelJob(sondev1.LabelKind, "FluentPVCBinding"), "Sonde gives this key its meaning"},
	"label of a Pod with a FluentPVC":  {labelJob(sondev1.KeyFluentPVC, "logs"), "Sonde gives this key its meaning"},
	"the same of the source system":    {annotateJob(sondev1.KeyFluentPVCSource, "logs"), "Sonde gives this key its meaning"},
	"annotation of a claim":            {annotateJob(sondev1.AnnotationClaim, "logs/logs-1/00"), "Sonde gives this key its meaning"},
	"annotation of an owner":           {annotateJob(sondev1.AnnotationOwner, "a/b"), "Sonde gives this key its meaning"},
	"another tenant's volume":          {func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.VolumeName = "pv-theirs" }, "volumeName"},
	"selector of volumes": {func(s *sondev1.FluentPVCSpec) {
		s.PVCSpecTemplate.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "theirs"}}
	}, "selector"},
	"block device": {func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.VolumeMode = new(corev1.PersistentVolumeBlock) }, "volumeMode"},
	"a claim of another namespace as source": {func(s *sondev1.FluentPVCSpec) {
		s.PVCSpecTemplate.DataSourceRef = claimOfAnother(new("theirs"))
	}, "dataSourceRef.namespace"},
	"a snapshot of another namespace as source": {func(s *sondev1.FluentPVCSpec) {
		s.PVCSpecTemplate.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "theirs", Namespace: new("theirs"),
		}
	}, "dataSourceRef.namespace"},
	"an ephemeral volume with such a source": {commonVolume(ephemeral(new("theirs"))), "dataSourceRef.namespace"},
	"one of the finalizer": {func(s *sondev1.FluentPVCSpec) {
		finalizerPod(s).Volumes = []corev1.Volume{{Name: "theirs", VolumeSource: ephemeral(new("theirs"))}}
	}, "dataSourceRef.namespace"},
	"volume of the Pod": {func(s *sondev1.FluentPVCSpec) {
		s.SidecarContainerTemplate.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}, "no volume has this name"},
	"Pods of another Job": {func(s *sondev1.FluentPVCSpec) {
		finalizer(s).ManualSelector, finalizer(s).Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}
		finalizer(s).Template.Labels = map[string]string{"app": "theirs"}
	}, "the Job controller chooses them"},
	"another controller for the Job":      {func(s *sondev1.FluentPVCSpec) { finalizer(s).ManagedBy = new("example.com/mine") }, "managedBy"},
	"a Job that succeeds without reading": {func(s *sondev1.FluentPVCSpec) { finalizer(s).Completions = new(int32(0)) }, "the data would be deleted"},
	"a ServiceAccount by its other name": {func(s *sondev1.FluentPVCSpec) {
		finalizerPod(s).ServiceAccountName, finalizerPod(s).DeprecatedServiceAccount = "default", "robot"
	}, "write serviceAccountName"},
}

// Users who may write FluentPVCs, but lack the verb inject for all namespaces, can define none and change none.
func TestAttackFluentPVCWithoutInject(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	good := cluster.FluentPVC(t, ns, nil)
	writer := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{sondev1.GroupVersion.Group}, Resources: []string{"fluentpvcs"}, Verbs: []string{"get", "create", "update", "patch"}},
	}}
	cluster.Create(t, writer)
	for user, role := range map[string]string{"edith": "edit", "adam": "admin", "mallory": "sonde-inject"} {
		cluster.Bind(t, ns, user, role)
	}
	cluster.Bind(t, "", "mallory", writer.Name)
	mallory := cluster.As(t, "mallory")
	mine := func() *sondev1.FluentPVC {
		return &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: good.Name + "-2", Annotations: good.Annotations}, Spec: *good.Spec.DeepCopy()}
	}
	patch := func(c client.Client, patch string) error {
		return c.Patch(t.Context(), good.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
	}
	const image = `{"spec":{"sidecarContainerTemplate":{"image":"evil"}}}`
	const stamp = `{"metadata":{"annotations":{"` + sondev1.AnnotationStamp + `":"` + "00" + `"}}}`
	cluster.Eventually(t, 15*time.Second, "control: metadata may be changed", func(context.Context) error {
		return patch(mallory, `{"metadata":{"labels":{"a":"b"}}}`)
	})
	t.Run("protected", func(t *testing.T) {
		for _, user := range []string{"edith", "adam"} {
			wantForbidden(t, cluster.As(t, user).Create(t.Context(), mine()), `cannot create resource "fluentpvcs"`)
			wantForbidden(t, patch(cluster.As(t, user), image), `cannot patch resource "fluentpvcs"`)
		}
		for name, err := range map[string]error{
			"creation, with the stamp of another": mallory.Create(t.Context(), mine()),
			"another image":                       patch(mallory, image),
			"a forged stamp":                      patch(mallory, stamp),
			"no stamp":                            patch(mallory, `{"metadata":{"annotations":null}}`),
		} {
			t.Run(name, func(t *testing.T) { wantForbidden(t, err, "a FluentPVC puts a container into other people's Pods") })
		}
	})
	t.Run("control: with inject", func(t *testing.T) {
		cluster.Bind(t, "", "mallory", "sonde-inject")
		cluster.Eventually(t, 15*time.Second, "another image", func(context.Context) error { return patch(mallory, image) })
		f := mine()
		cluster.CreateEventually(t, mallory, f)
		cluster.AwaitReady(t, f)
		if !strings.Contains(f.Annotations[sondev1.AnnotationRequester], "mallory") || f.Annotations[sondev1.AnnotationStamp] == good.Annotations[sondev1.AnnotationStamp] {
			t.Errorf("annotations %v, want a stamp of mallory's", f.Annotations)
		}
	})
}

// The finalizer Job of a FluentPVC runs as a ServiceAccount with rights that the creator of the Pod may not have.
func TestAttackFluentPVCServiceAccount(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) { finalizerPod(s).ServiceAccountName = "robot" })
	cluster.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}})
	cluster.Bind(t, ns, "mallory", "edit")
	for name, tc := range map[string]struct{ account, want string }{
		"protected: the Pod runs as default": {"", "would run as ServiceAccount robot"},
		"control: the Pod runs as the same":  {"robot", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := cluster.WriterPod(ns, "writer", f)
			p.Spec.ServiceAccountName = tc.account
			err := cluster.As(t, "mallory").Create(t.Context(), p, client.DryRunAll)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
