//go:build e2e

package security

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// A probe reads its configuration from a ConfigMap whose name users influence through the names of a namespace and a
// workload. A ConfigMap of that name in a user's namespace has no effect, and two captures that want the same name get
// one each.
func TestAttackCraftedConfigMap(t *testing.T) {
	// Both want the ConfigMap PREFIX-a-b: namespace PREFIX-a with workload b, and namespace PREFIX with workload a-b.
	prefix := cluster.Namespace(t, nil)
	victimNS, attackerNS := named(t, prefix+"-a"), prefix
	cluster.Deployment(t, victimNS, "b", 1, "sink")
	cluster.Deployment(t, attackerNS, "a-b", 1, "sink")
	cluster.Bind(t, attackerNS, "mallory", "admin")
	mallory := cluster.As(t, "mallory")

	crafted := captureconfig.Config{UID: "any", Kind: "PacketCapture", Filter: "crafted", SnapLength: 16, MaxBytes: 65536, RingBytes: 1 << 20}
	text, err := crafted.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	bait := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: attackerNS, Name: prefix + "-a-b"}, Data: map[string]string{captureconfig.Key: text}}
	if err := mallory.Create(t.Context(), bait); err != nil {
		t.Fatal(err)
	}
	first := cluster.Capture(t, mallory, attackerNS, sondev1.PacketCaptureSpec{TargetDeployment: "a-b", Duration: "10m", Filter: "tcp port 1"})
	second := cluster.Capture(t, cluster.Admin, victimNS, sondev1.PacketCaptureSpec{TargetDeployment: "b", Duration: "10m", Filter: "udp"})

	t.Run("protected", func(t *testing.T) {
		there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "crafted"}, Data: bait.Data}
		wantForbidden(t, mallory.Create(t.Context(), there), "configmaps")
		wantForbidden(t, mallory.Patch(t.Context(), configMapOf(t, second), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"capture.json":"{}"}}`))), "configmaps")
		names := map[string]string{}
		for _, pc := range []*sondev1.PacketCapture{first, second} {
			cm := configMapOf(t, pc)
			var cfg captureconfig.Config
			if err := json.Unmarshal([]byte(cm.Data[captureconfig.Key]), &cfg); err != nil {
				t.Fatal(err)
			}
			if cfg.UID != string(pc.UID) || cfg.Filter != pc.Spec.Filter {
				t.Errorf("the ConfigMap %s of %s has UID %s and filter %q, want its capture's", cm.Name, pc.UID, cfg.UID, cfg.Filter)
			}
			names[cm.Name] = pc.Name
			if mounted := mountedConfig(&cluster.JobsOf(t, pc)[0]); mounted != cm.Name {
				t.Errorf("the Job of %s mounts %s, want its own %s", pc.Name, mounted, cm.Name)
			}
		}
		if len(names) != 2 {
			t.Errorf("got ConfigMaps %v, want one per capture", names)
		}
		cluster.DeleteNow(t, first)
		cluster.NothingLeft(t, string(first.UID))
		if cm := configMapOf(t, second); cm.DeletionTimestamp != nil {
			t.Errorf("%s was deleted with another capture", cm.Name)
		}
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(bait), bait); err != nil || !bait.DeletionTimestamp.IsZero() {
			t.Errorf("the user's own ConfigMap was changed: %v", err)
		}
	})
	t.Run("control: no second name", func(t *testing.T) {
		// A Job of the victim that finds its ConfigMap by name alone captures with the attacker's configuration.
		third := cluster.Capture(t, mallory, attackerNS, sondev1.PacketCaptureSpec{TargetDeployment: "a-b", Duration: "10m", Filter: "tcp port 1"})
		job := cloneOf(t, second, configMapOf(t, third).Name, string(third.UID))
		wantMessage(t, job, `"filter":"tcp port 1"`)
	})
}

// A probe uses only the configuration of its own capture, even if the kubelet has mounted another's.
func TestAttackConfigurationOfAnother(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	mine := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: "udp"})
	another := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: "tcp port 1"})
	job := cloneOf(t, mine, configMapOf(t, another).Name, string(mine.UID)) // it waits for two minutes
	t.Run("control: the UID of the other", func(t *testing.T) {
		wantMessage(t, cloneOf(t, mine, configMapOf(t, another).Name, string(another.UID)), `"filter":"tcp port 1"`)
	})
	t.Run("protected", func(t *testing.T) {
		wantMessage(t, job, fmt.Sprintf("the mounted configuration belongs to capture %s, not %s", another.UID, mine.UID))
	})
}

// The pause switch is a ConfigMap in the operator's namespace. No capture's ConfigMap can get its name; otherwise
// deleting the capture would delete the switch.
func TestAttackThePause(t *testing.T) {
	ns := named(t, "sonde") // the name derives from namespace and workload: "sonde" and "config"
	cluster.Deployment(t, ns, "config", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: pause.ConfigMapName}
	switchOn := func(like metav1.ObjectMeta) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: like.Labels, Annotations: like.Annotations}, Data: map[string]string{pause.Key: "true"}}
		if err := cluster.Admin.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), cm) })
		return cm
	}
	t.Run("protected", func(t *testing.T) {
		pc := cluster.Capture(t, mallory, ns, sondev1.PacketCaptureSpec{TargetDeployment: "config", Duration: "10m"})
		if err := cluster.Admin.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the capture's ConfigMap has the name of the pause switch: %v", err)
		}
		cm := switchOn(metav1.ObjectMeta{})
		cluster.AwaitFinal(t, pc, 30*time.Second)
		cluster.DeleteNow(t, pc)
		cluster.NothingLeft(t, string(pc.UID))
		if err := cluster.Admin.Get(t.Context(), key, cm); err != nil {
			t.Errorf("the pause switch was deleted with the capture: %v", err)
		}
		cluster.DeleteNow(t, cm)
	})
	t.Run("control: the switch has the labels of the capture's ConfigMap", func(t *testing.T) {
		pc := cluster.Capture(t, mallory, ns, sondev1.PacketCaptureSpec{TargetDeployment: "config", Duration: "10m"})
		cm := switchOn(configMapOf(t, pc).ObjectMeta)
		cluster.AwaitFinal(t, pc, 30*time.Second)
		cluster.DeleteNow(t, pc)
		cluster.Gone(t, cm, 30*time.Second)
	})
}

// named creates a namespace with a given name.
func named(t *testing.T, name string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := cluster.Admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), ns) })
	return name
}

// configMapOf returns the one ConfigMap of a capture.
func configMapOf(t *testing.T, pc *sondev1.PacketCapture) *corev1.ConfigMap {
	t.Helper()
	var list corev1.ConfigMapList
	if err := cluster.Admin.List(t.Context(), &list, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d ConfigMaps of %s, want 1 (%v)", len(list.Items), pc.Name, err)
	}
	return &list.Items[0]
}

func mountedConfig(job *batchv1.Job) string {
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

// cloneOf creates a Job like the capture's own, which no controller knows, with another ConfigMap and another
// --capture-uid.
func cloneOf(t *testing.T, pc *sondev1.PacketCapture, configMap, captureUID string) *batchv1.Job {
	t.Helper()
	return cloneWith(t, pc, func(spec *corev1.PodSpec) {
		for i := range spec.Volumes {
			if v := spec.Volumes[i].ConfigMap; v != nil {
				v.Name = configMap
			}
		}
		args := spec.Containers[0].Args
		args[slices.Index(args, "--capture-uid")+1] = captureUID
	})
}

func cloneWith(t *testing.T, pc *sondev1.PacketCapture, change func(*corev1.PodSpec)) *batchv1.Job {
	t.Helper()
	own := cluster.JobsOf(t, pc)[0]
	template := own.Spec.Template.DeepCopy()
	clone := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, GenerateName: "clone-"},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"openshift.io/required-scc": template.Annotations["openshift.io/required-scc"]}},
			Spec:       template.Spec,
		}},
	}
	change(&clone.Spec.Template.Spec)
	if err := cluster.Admin.Create(t.Context(), clone); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), clone, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
	return clone
}

// wantMessage waits until the probe of a Job writes a message, into its log or its termination message. A probe waits
// two minutes for its own configuration.
func wantMessage(t *testing.T, job *batchv1.Job, want string) {
	t.Helper()
	p := podOf(t, job)
	cluster.Eventually(t, 3*time.Minute, "the probe's message", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase == corev1.PodPending {
			return fmt.Errorf("pending: %+v", p.Status.ContainerStatuses)
		}
		said := logs(t, p, captureconfig.ContainerProbe) + probeAccount(p).Message
		if !strings.Contains(said, want) {
			return fmt.Errorf("the probe wrote %s", said)
		}
		return nil
	})
}

// probeAccount returns the account that an ended probe left.
func probeAccount(p *corev1.Pod) account.Account {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == captureconfig.ContainerProbe && s.State.Terminated != nil {
			a, _ := account.Parse([]byte(s.State.Terminated.Message)) // a missing account counts as empty
			return a
		}
	}
	return account.Account{}
}
