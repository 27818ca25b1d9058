//go:build e2e

package fluentpvc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

var writers = map[string]string{"app": "writer"}

// template is the template of Pods that name a FluentPVC and write into their volumes.
func template(f *sondev1.FluentPVC, args ...string) corev1.PodTemplateSpec {
	p := cluster.WriterPod("", "", f, args...)
	p.Labels = writers
	p.Spec.RestartPolicy = ""
	return corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

// runningPods waits until a namespace has n writers, all running and none being deleted.
func runningPods(t *testing.T, ns string, n int) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	cluster.Eventually(t, patience, fmt.Sprintf("%d writers run", n), func(ctx context.Context) error {
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels(writers)); err != nil {
			return err
		}
		run := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() {
				run++
			}
		}
		if run != n || len(pods.Items) != n {
			return fmt.Errorf("%d of %d writers run", run, len(pods.Items))
		}
		return nil
	})
	return pods.Items
}

// A Pod that names no FluentPVC stays as it is, in a namespace where others have volumes.
func TestFluentPVCOtherPods(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, nil)
	other := cluster.Pod(t, ns, "other", cluster.PodSpec("idle"))
	writer := cluster.WriterPod(ns, "writer", f, "-stay")
	claim := create(t, writer)
	cluster.AwaitBinding(t, ns, claim, sondev1.BindingReady, patience)
	cluster.DeleteNow(t, writer)
	cluster.NoClaims(t, ns, patience)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	for _, v := range other.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			t.Errorf("volume %+v", v)
		}
	}
	if n := len(other.Spec.Containers) + len(other.Spec.InitContainers); n != 1 || other.Status.Phase != corev1.PodRunning || !other.DeletionTimestamp.IsZero() {
		t.Errorf("%d containers, phase %s, deleted at %v: want a running Pod with one", n, other.Status.Phase, other.DeletionTimestamp)
	}
	for key := range other.Annotations {
		if strings.HasPrefix(key, sondev1.GroupVersion.Group) {
			t.Errorf("annotation %s", key)
		}
	}
}

// A Pod that is deleted without a grace period, while its containers run, is processed.
func TestFluentPVCPodForceDeleted(t *testing.T) {
	t.Parallel()
	v := newVolume(t, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
	if err := cluster.Admin.Delete(t.Context(), v.pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	v.awaitProcessed(t)
	v.discard(t)
}

// processedLines are what the Pods of these tests write.
const processedLines = 1000

// awaitProcessed waits until the finalizer has read them.
func (v volume) awaitProcessed(t *testing.T) {
	t.Helper()
	b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobSucceeded, patience)
	if log, want := cluster.FinalizerLog(t, b), expected(processedLines); !strings.Contains(log, want) {
		t.Errorf("the finalizer read %q, want SHA-256 %s", log, want)
	}
}

// A Pod of a StatefulSet is replaced by one of the same name. That has a volume of its own, and the old one is processed.
func TestFluentPVCOfAStatefulSet(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
	set := &appsv1.StatefulSet{ObjectMeta: objectMeta(ns, "writer"), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: writers}, PodManagementPolicy: appsv1.ParallelPodManagement,
		Template: template(f, "-stay"),
	}}
	if err := cluster.Admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	before := claimsByPod(t, runningPods(t, ns, 2))
	cluster.DeleteNow(t, &corev1.Pod{ObjectMeta: objectMeta(ns, "writer-0")})
	volume{ns: ns, claim: before["writer-0"]}.awaitProcessed(t)
	after := claimsByPod(t, runningPods(t, ns, 2))
	if after["writer-0"] == "" || after["writer-0"] == before["writer-0"] || after["writer-1"] != before["writer-1"] {
		t.Errorf("claims %v, and %v after writer-0 was deleted: want only its claim replaced", before, after)
	}
	for _, claim := range after {
		cluster.AwaitBinding(t, ns, claim, sondev1.BindingReady, patience)
	}
	cluster.DeleteNow(t, set)
	discardAll(t, ns)
}

func claimsByPod(t *testing.T, pods []corev1.Pod) map[string]string {
	t.Helper()
	claims := map[string]string{}
	for i := range pods {
		claims[pods[i].Name] = cluster.ClaimOf(t, &pods[i])
	}
	return claims
}

// Each Pod of a DaemonSet has a volume, and each is processed when the DaemonSet is deleted.
func TestFluentPVCOfADaemonSet(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
	set := &appsv1.DaemonSet{ObjectMeta: objectMeta(ns, "writer"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: writers}, Template: template(f, "-stay"),
	}}
	if err := cluster.Admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	nodes := cluster.NodeNames(t)
	claims := claimsByPod(t, runningPods(t, ns, len(nodes)))
	cluster.DeleteNow(t, set)
	for _, claim := range claims {
		volume{ns: ns, claim: claim}.awaitProcessed(t)
	}
	discardAll(t, ns)
}

// The sidecar of a Job's Pod ends by itself after the application. The Pod is not evicted, which the Job would count as a failure.
func TestFluentPVCOfAJob(t *testing.T) {
	t.Parallel()
	for _, mode := range []sondev1.SidecarMode{sondev1.SidecarContainer, sondev1.SidecarNative} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ofAJob(t, mode)
		})
	}
}

func ofAJob(t *testing.T, mode sondev1.SidecarMode) {
	t.Helper()
	const done = cluster.VolumePath + "/done"
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) {
		s.SidecarMode, s.Retention = mode, "1h"
		if mode == sondev1.SidecarContainer { // Kubernetes ends a native one
			s.SidecarContainerTemplate.Args = []string{"ship", "-until", done, "-linger", "2s"}
		}
	})
	job := &batchv1.Job{ObjectMeta: objectMeta(ns, "writer"), Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: template(f, "-done", done)}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if err := cluster.Admin.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, patience, "Job complete", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status %+v", job.Status)
	})
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels(writers)); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods of the Job, want 1; error %v", len(pods.Items), err)
	}
	v := volume{ns: ns, claim: cluster.ClaimOf(t, &pods.Items[0])}
	v.awaitProcessed(t)
	cluster.DeleteNow(t, job) // Kubernetes keeps the claim as long as its Pod
	v.discard(t)
}
