//go:build e2e

package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// sidecarCase is a FluentPVC whose sidecars end while the applications of its Pods run, with two such Pods.
type sidecarCase struct {
	mode           sondev1.SidecarMode
	exit           int
	evict, deleted bool
	volumes        []volume
}

// String names the case.
func (c sidecarCase) String() string {
	return fmt.Sprintf("exit %d, evict %v, deleted %v", c.exit, c.evict, c.deleted)
}

// The sidecar ends with 0 or 1, once or again and again; the FluentPVC asks for evictions or not; and it is kept or deleted
// meanwhile. An evicted Pod goes by itself. Any other stays until it is deleted. Each volume is processed and deleted.
//
// A Native sidecar never stays ended, also not with restartPolicy Never: Kubernetes restarts it. So the cases are the same, but all
// of its Pods have a sidecar that restarts.
//
// The Pods of all cases of a mode run at the same time, in one namespace: they mostly wait for Kubernetes.
func TestFluentPVCSidecarEnds(t *testing.T) {
	t.Parallel()
	for _, mode := range []sondev1.SidecarMode{sondev1.SidecarContainer, sondev1.SidecarNative} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ns := cluster.Namespace(t, nil)
			cluster.AllowFluentPVC(t, ns)
			var cases []sidecarCase
			for _, exit := range []int{0, 1} {
				for _, evict := range []bool{true, false} {
					for _, deleted := range []bool{true, false} {
						c := sidecarCase{mode: mode, exit: exit, evict: evict, deleted: deleted}
						c.start(t, ns, fmt.Sprint(len(cases)))
						cases = append(cases, c)
					}
				}
			}
			for _, c := range cases { // before any is waited for, so that no case delays the next
				if !c.evict {
					t.Run(c.String()+", the Pods stay", c.checkStays)
				}
			}
			for _, c := range cases {
				t.Run(c.String(), c.checkProcessed)
			}
		})
	}
}

// start creates two Pods whose sidecars end: one restarts its containers, and one does not. suffix tells the cases of a namespace
// apart.
func (c *sidecarCase) start(t *testing.T, ns, suffix string) {
	t.Helper()
	f := cluster.FluentPVC(t, ns+"-"+suffix, func(s *sondev1.FluentPVCSpec) {
		s.SidecarMode = c.mode
		s.DeletePodIfSidecarContainerTerminationDetected = &c.evict
		s.SidecarContainerTemplate.Args = []string{"ship", "-after", "2s", "-exit", strconv.Itoa(c.exit)}
	})
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyAlways} {
		pod := cluster.WriterPod(ns, "restarts-"+strings.ToLower(string(policy))+"-"+suffix, f, "-stay")
		pod.Spec.RestartPolicy = policy
		c.volumes = append(c.volumes, volume{ns: ns, f: f, pod: pod, claim: create(t, pod)})
	}
	if c.deleted {
		for _, v := range c.volumes {
			cluster.AwaitBinding(t, ns, v.claim, sondev1.BindingReady, patience)
		}
		cluster.DeleteNow(t, f)
	}
}

// checkStays checks that the Pods stay, and deletes them.
func (c *sidecarCase) checkStays(t *testing.T) {
	for _, v := range c.volumes {
		v.awaitUnsupervised(t)
		cluster.DeleteNow(t, v.pod)
	}
}

// checkProcessed checks that Pods, bindings and claims go.
func (c *sidecarCase) checkProcessed(t *testing.T) {
	for _, v := range c.volumes {
		cluster.Gone(t, v.pod, patience)
		cluster.Gone(t, &sondev1.FluentPVCBinding{ObjectMeta: objectMeta(v.ns, v.claim)}, patience)
		// The binding goes after its claim.
		if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: v.ns, Name: v.claim}, &corev1.PersistentVolumeClaim{}); !apierrors.IsNotFound(err) {
			t.Errorf("get claim %s: %v, want that it is gone", v.claim, err)
		}
	}
}

// awaitUnsupervised waits until the binding says that the sidecar has ended and that the Pod stays.
func (v volume) awaitUnsupervised(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, patience, "condition SidecarHealthy False", func(ctx context.Context) error {
		b := &sondev1.FluentPVCBinding{}
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: v.ns, Name: v.claim}, b); err != nil {
			return err
		}
		condition := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionSidecarHealthy)
		if condition == nil || condition.Reason != sondev1.ReasonSidecarUnsupervised {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(v.pod), &corev1.Pod{}); err != nil {
		t.Errorf("the Pod does not stay: %v", err)
	}
}

// A finalizer Job that fails twice and then succeeds ends once. After two attempts the claim is kept, until retry.
func TestFluentPVCAttempts(t *testing.T) {
	t.Parallel()
	v := newVolume(t, func(s *sondev1.FluentPVCSpec) {
		s.Finalizer = sondev1.FinalizerPolicy{MaxAttempts: 2, Backoff: "1s"}
		s.PVCFinalizerJobSpecTemplate.Template.Spec = cluster.FinalizerSpec("sum", "-dir", cluster.VolumePath, "-fail", "2")
	})
	cluster.DeleteNow(t, v.pod)
	b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobFailed, patience)
	if b.Status.Attempt != 2 {
		t.Errorf("%d attempts, want 2", b.Status.Attempt)
	}
	v.getClaim(t) // it is kept
	run(t, "fluentpvc", "retry", v.claim, "-n", v.ns)
	cluster.NoClaims(t, v.ns, patience)
}

// A finalizer Job that always fails keeps the claim, until discard.
func TestFluentPVCAttemptsExhausted(t *testing.T) {
	t.Parallel()
	v := newVolume(t, func(s *sondev1.FluentPVCSpec) {
		s.Finalizer = sondev1.FinalizerPolicy{MaxAttempts: 1}
		s.PVCFinalizerJobSpecTemplate.Template.Spec = cluster.FinalizerSpec("sum", "-dir", cluster.VolumePath, "-fail", "-1")
	})
	cluster.DeleteNow(t, v.pod)
	cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobFailed, patience)
	// The control: nobody else may delete the claim.
	err := cluster.Admin.Delete(t.Context(), v.getClaim(t))
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("deleting the claim: %v, want a refusal", err)
	}
	v.discard(t)
}

// A finalizer Job that is deleted is made again.
func TestFluentPVCJobDeleted(t *testing.T) {
	t.Parallel()
	v := newVolume(t, idle)
	cluster.DeleteNow(t, v.pod)
	b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobApplied, patience)
	cluster.DeleteJobs(t, v.ns)
	cluster.Eventually(t, patience, "a second attempt", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if b.Status.Attempt < 2 || b.Status.Phase != sondev1.BindingFinalizerJobApplied {
			return errors.New("still attempt " + strconv.Itoa(int(b.Status.Attempt)))
		}
		return nil
	})
	v.discard(t)
}
