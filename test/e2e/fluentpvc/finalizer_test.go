//go:build e2e

package fluentpvc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A user runs a copy of the finalizer Job. The operator follows its own. The claim goes when both have ended.
func TestFluentPVCJobCopied(t *testing.T) {
	t.Parallel()
	const mark = cluster.VolumePath + "/mark"
	v := newVolume(t, func(s *sondev1.FluentPVCSpec) {
		s.PVCFinalizerJobSpecTemplate.Template.Spec = cluster.FinalizerSpec("ship", "-until", mark) // ends when the copy has started
	})
	cluster.DeleteNow(t, v.pod)
	cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobApplied, patience)
	mine := v.copyJob(t, "write", "-file", mark, "-stay")
	ours := &batchv1.Job{ObjectMeta: objectMeta(v.ns, v.claim+"-1")}
	cluster.Gone(t, ours, patience)
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(v.ns), client.MatchingLabels{"job-name": mine.Name}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods of the copy, want 1; error %v", len(pods.Items), err)
	}
	cluster.Eventually(t, patience, "the claim waits for the copy", func(ctx context.Context) error {
		b := &sondev1.FluentPVCBinding{}
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: v.ns, Name: v.claim}, b); err != nil {
			return err
		}
		return hasCondition(b, sondev1.ConditionClaimCreated, sondev1.ReasonClaimDeleted, pods.Items[0].Name)
	})
	cluster.DeleteNow(t, mine)
	cluster.NoClaims(t, v.ns, patience)
}

// copyJob creates a Job with the labels and annotations of the finalizer Job, and other arguments.
func (v volume) copyJob(t *testing.T, args ...string) *batchv1.Job {
	t.Helper()
	ours := &batchv1.Job{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: v.ns, Name: v.claim + "-1"}, ours); err != nil {
		t.Fatal(err)
	}
	mine := &batchv1.Job{ObjectMeta: objectMeta(v.ns, "copy"), Spec: ours.Spec}
	mine.Labels, mine.Annotations = ours.Labels, ours.Annotations
	mine.Spec.Selector = nil
	mine.Spec.Template.Spec.Containers[0].Args = args
	for _, labels := range []map[string]string{mine.Labels, mine.Spec.Template.Labels} {
		for _, key := range []string{"controller-uid", "job-name", batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
			delete(labels, key)
		}
	}
	if err := cluster.Admin.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	return mine
}

func hasCondition(b *sondev1.FluentPVCBinding, kind, reason, text string) error {
	c := apimeta.FindStatusCondition(b.Status.Conditions, kind)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
		return fmt.Errorf("phase %s, condition %s %+v: want reason %s and a message with %q", b.Status.Phase, kind, c, reason, text)
	}
	return nil
}

// An admin withdraws the permission while the Pod runs. The data waits, and the binding has the command that lets it go on.
func TestFluentPVCPermissionWithdrawn(t *testing.T) {
	t.Parallel()
	v := newVolume(t, idle)
	run(t, "fluentpvc", "disallow", "-n", v.ns)
	cluster.DeleteNow(t, v.pod)
	cluster.Eventually(t, patience, "condition NotPermitted", func(ctx context.Context) error {
		b := &sondev1.FluentPVCBinding{}
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: v.ns, Name: v.claim}, b); err != nil {
			return err
		}
		return hasCondition(b, sondev1.ConditionFinalized, sondev1.ReasonNotPermitted, "kubectl sonde fluentpvc allow -n "+v.ns)
	})
	cluster.AllowFluentPVC(t, v.ns)
	allowed := time.Now()
	cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobApplied, time.Minute)
	t.Logf("went on %s after the permission", time.Since(allowed).Round(time.Second))
	v.discard(t)
}
