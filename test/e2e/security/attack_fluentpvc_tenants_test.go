//go:build e2e

package security

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A tenant tries to read, discard or process the volume of another namespace, and to take its room.
func TestAttackFluentPVCOfAnotherTenant(t *testing.T) {
	const most = 2
	victim := newTenant(t, func(s *sondev1.FluentPVCSpec) { s.MaxBindings = most })
	attacker := tenant{cluster.Namespace(t, nil), victim.f}
	cluster.AllowFluentPVC(t, attacker.ns)
	cluster.Bind(t, attacker.ns, "mallory", "admin")
	cluster.Bind(t, victim.ns, "victoria", "admin")
	mallory, victoria := cluster.As(t, "mallory"), cluster.As(t, "victoria")
	writer := cluster.WriterPod(victim.ns, "writer", victim.f, "-stay")
	b := bound(t, victoria, writer)
	cluster.Eventually(t, time.Minute, "the Pod has written", func(ctx context.Context) error {
		if log, err := cluster.Logs(ctx, writer); err != nil || log == "" {
			return errors.Join(err, fmt.Errorf("log %q", log))
		}
		return nil
	})
	t.Run("protected: the binding", func(t *testing.T) {
		for _, o := range []client.Object{b, ownClaim(victim.ns, b.Name, nil)} {
			live := o.DeepCopyObject().(client.Object)
			wantForbidden(t, mallory.Get(t.Context(), client.ObjectKeyFromObject(o), live), "cannot get resource")
			wantForbidden(t, mallory.Patch(t.Context(), live, mergePatch(annotation("discard", "1"))), "cannot patch resource")
			wantForbidden(t, mallory.Delete(t.Context(), live), "cannot delete resource")
		}
		for _, command := range []string{"retry", "discard"} {
			if out, err := pluginAs(t, "mallory", command, b.Name, "-n", victim.ns); err == nil || !strings.Contains(out, "forbidden") {
				t.Errorf("%s: %v, %s; want it forbidden", command, err, out)
			}
		}
		stay(t, b, ownClaim(victim.ns, b.Name, nil))
	})
	t.Run("a Pod with its claim", func(t *testing.T) { reading(t, mallory, victoria, attacker, victim, b.Name) })
	t.Run("all of maxBindings", func(t *testing.T) {
		for i := range most {
			bound(t, mallory, attacker.waiter(fmt.Sprint("waiter-", i)))
		}
		const full = "spec.maxBindings allows 2"
		wantRefusal(t, "control: one more of the attacker", mallory.Create(t.Context(), attacker.waiter("more")), full)
		bound(t, victoria, victim.waiter("second")) // protected: the victim has room
		wantRefusal(t, "control: one more of the victim", victoria.Create(t.Context(), victim.waiter("third")), full)
	})
	t.Run("control: the victim discards", func(t *testing.T) {
		if out, err := pluginAs(t, "victoria", "discard", b.Name, "-n", victim.ns); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cluster.DeleteNow(t, writer)
		cluster.Gone(t, b, time.Minute)
	})
}

// pluginAs runs a command of the plugin as a user.
func pluginAs(t *testing.T, user, command string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"--as", user, "--as-group", "system:authenticated", "fluentpvc", command}, args...)
	if command == "discard" {
		args = append(args, "--yes")
	}
	out, err := exec.CommandContext(t.Context(), cluster.Plugin, args...).CombinedOutput()
	return string(out), err
}

// reading creates the same Pod in two namespaces: it prints the volume of a claim.
func reading(t *testing.T, mallory, victoria client.Client, attacker, victim tenant, claim string) {
	t.Helper()
	reader := func(by client.Client, ns string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}, Spec: cluster.FinalizerSpec("sum", "-dir", cluster.VolumePath)}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: cluster.VolumePath}}
		cluster.CreateEventually(t, by, p)
		return p
	}
	protected, control := reader(mallory, attacker.ns), reader(victoria, victim.ns)
	awaitEnd(t, control)
	if log := logs(t, control, "c"); !strings.Contains(log, " log") {
		t.Errorf("control: the Pod printed %q, want the sum of the file", log)
	}
	awaitEvent(t, protected, "FailedScheduling", fmt.Sprintf("persistentvolumeclaim %q not found", claim))
	absent(t, ownClaim(attacker.ns, claim, nil), binding(attacker.ns, claim))
}

func awaitEnd(t *testing.T, p *corev1.Pod) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "Pod "+p.Name+" done", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase != corev1.PodSucceeded {
			return errors.Join(err, fmt.Errorf("phase %s", p.Status.Phase))
		}
		return nil
	})
}

// A user creates 200 Pods at once. The Pods of another namespace get their claims meanwhile.
func TestAttackFluentPVCFlood(t *testing.T) {
	const pods, quiet, most = 200, 3, 30 * time.Second
	victim := newTenant(t, nil)
	attacker := tenant{cluster.Namespace(t, nil), victim.f}
	cluster.AllowFluentPVC(t, attacker.ns)
	cluster.Bind(t, attacker.ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	cluster.Eventually(t, 15*time.Second, "the attacker's rights", func(ctx context.Context) error {
		return mallory.Create(ctx, attacker.waiter("dry"), client.DryRunAll)
	})
	var before []time.Duration
	for i := range quiet {
		before = append(before, untilClaim(t, victim.waiter(fmt.Sprint("quiet-", i))))
	}
	started := time.Now()
	stop := flooding(t, mallory, attacker, pods)
	var during []time.Duration
	for i := 0; flooded(t, attacker.ns) < pods && i < 100; i++ {
		during = append(during, untilClaim(t, victim.waiter(fmt.Sprint("beside-", i))))
	}
	took := time.Since(started)
	created := stop()
	// Eventually looks every 200 ms, and a busy machine takes seconds now and then.
	limit := min(10*max(slices.Max(before), time.Second), most)
	t.Logf("claims of the victim: %v without the flood, %v during the %s in which the attacker's %d Pods got theirs", before, during, took.Round(time.Millisecond), created)
	if created != pods || len(during) == 0 {
		t.Errorf("control: %d Pods, %d measurements; want %d Pods, and at least 1 measurement meanwhile", created, len(during), pods)
	}
	if worst := slices.Max(during); worst > limit {
		t.Errorf("the victim waited up to %s, want at most %s", worst, limit)
	}
}

// A user creates Pods with thousands of claims, and a claim with thousands of labels under a name that the webhook looks up, to fill the
// manager's memory. No node sees them, and they name no FluentPVC or are dry runs.
func TestAttackFluentPVCManyClaims(t *testing.T) {
	const pods, claims, labels, dryRuns, atOnce = 20, 5_000, 12_000, 320, 16
	n, victim := newTenant(t, nil), newTenant(t, nil)
	cluster.Bind(t, n.ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	name, annotation := n.signed(t, mallory)
	before := managerMemory(t)
	check := func(t *testing.T, pod string) {
		t.Helper()
		bound(t, cluster.Admin, victim.waiter(pod)) // so the manager has the objects, and others are served
		if after := managerMemory(t); after > before+64<<20 {
			t.Errorf("the manager's memory went from %d to %d MiB, want at most 64 MiB more", before>>20, after>>20)
		}
	}
	t.Run("protected: Pods with many claims", func(t *testing.T) {
		for i := range pods {
			p := n.waiter(fmt.Sprint("crowd-", i))
			delete(p.Annotations, sondev1.KeyFluentPVC)
			for j := range claims { // with names like those that the webhook makes up
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", j), VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("logs-%04x%04x-%s", i, j, strings.Repeat("a", 10))},
				}})
			}
			cluster.CreateEventually(t, mallory, p)
		}
		check(t, "after-many")
		p := n.waiter("crowd-0") // the control: the API server has all claims
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || len(p.Spec.Volumes) < claims {
			t.Errorf("%d volumes, error %v; want %d", len(p.Spec.Volumes), err, claims)
		}
	})
	t.Run("protected: a large claim", func(t *testing.T) {
		cluster.CreateEventually(t, mallory, ownClaim(n.ns, name, manyLabels(labels)))
		named := make([]string, dryRuns)
		running := make(chan struct{}, atOnce)
		var all sync.WaitGroup
		for i := range dryRuns {
			all.Go(func() {
				running <- struct{}{}
				defer func() { <-running }()
				p := n.waiter(fmt.Sprint("dry-", i))
				p.Annotations[sondev1.AnnotationClaim] = annotation
				if mallory.Create(t.Context(), p, client.DryRunAll) == nil { // the webhook refuses some for a moment
					named[i] = claimOf(p)
				}
			})
		}
		all.Wait()
		check(t, "after-large")
		// The control: a Pod that is admitted has another name, so the webhook has read the large claim.
		named = slices.DeleteFunc(named, func(claim string) bool { return claim == "" })
		t.Logf("%d of %d dry runs were admitted", len(named), dryRuns)
		if len(named) == 0 || slices.Contains(named, name) {
			t.Errorf("control: the Pods have claims %.10q, want others than %s", named, name)
		}
	})
}

// claimOf returns the name of a Pod's claim, or "".
func claimOf(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// untilClaim creates a Pod as the administrator, and returns how long it takes until its claim exists. Like a controller it tries
// again while the webhook has no answer in time.
func untilClaim(t *testing.T, p *corev1.Pod) time.Duration {
	t.Helper()
	started := time.Now()
	cluster.Eventually(t, time.Minute, "Pod "+p.Name, func(ctx context.Context) error { return cluster.Admin.Create(ctx, p) })
	cluster.Eventually(t, time.Minute, "the claim of Pod "+p.Name, func(ctx context.Context) error {
		return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: cluster.ClaimOf(t, p)}, &corev1.PersistentVolumeClaim{})
	})
	return time.Since(started).Round(time.Millisecond)
}

// flooding creates Pods as fast as the API server takes them. stop waits until it has, and returns how many there are.
func flooding(t *testing.T, by client.Client, n tenant, pods int) (stop func() int) {
	t.Helper()
	var running sync.WaitGroup
	created := make([]error, pods)
	for i := range pods {
		running.Go(func() {
			for try := range 5 { // the webhook and the API server refuse some for a moment
				if created[i] = by.Create(t.Context(), n.waiter(fmt.Sprintf("flood-%d-%d", i, try))); created[i] == nil {
					return
				}
			}
		})
	}
	return func() int {
		running.Wait()
		for _, err := range created {
			if err != nil {
				t.Log(err)
				pods--
			}
		}
		return pods
	}
}

// flooded returns the number of claims in a namespace.
func flooded(t *testing.T, ns string) int {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := cluster.Admin.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// A user who may change Pods, but neither delete nor evict them, lets another workload's Pod look like one whose sidecar has ended.
func TestAttackFluentPVCForgedSidecar(t *testing.T) {
	n := newTenant(t, func(s *sondev1.FluentPVCSpec) {
		s.SidecarContainerTemplate.Args = []string{"ship", "-after", "2s", "-exit", "1"}
	})
	cluster.Bind(t, n.ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	cluster.Create(t, ownClaim(n.ns, "theirs", nil))
	victim := n.forged("victim", "theirs")
	victim.Spec.SchedulingGates, victim.Spec.RestartPolicy = nil, corev1.RestartPolicyAlways
	victim.Spec.Containers[0].Args, victim.Spec.Containers[1].Args = []string{"idle"}, n.f.Spec.SidecarContainerTemplate.Args
	cluster.Create(t, victim)
	cluster.Eventually(t, time.Minute, "the victim's container restarted", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(victim), victim); err != nil {
			return err
		}
		for _, s := range victim.Status.ContainerStatuses {
			if s.Name == n.f.Spec.SidecarContainerTemplate.Name && s.RestartCount > 0 {
				return nil
			}
		}
		return fmt.Errorf("%+v", victim.Status.ContainerStatuses)
	})
	// A signed name of a Pod of the attacker's, which has a binding, and one that is free.
	own := n.waiter("own")
	bound(t, mallory, own)
	_, free := n.signed(t, mallory)
	for _, annotation := range []string{own.Annotations[sondev1.AnnotationClaim], free, strings.Replace(free, "/", "/theirs/", 1)} {
		annotateLater(t, mallory, victim, n.f.Name, annotation)
	}
	evicted := cluster.WriterPod(n.ns, "evicted", n.f, "-stay")
	bound(t, mallory, evicted)
	cluster.Gone(t, evicted, 2*time.Minute) // the control: its sidecar has ended
	live := victim.DeepCopy()
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(victim), live); err != nil || live.UID != victim.UID || !live.DeletionTimestamp.IsZero() {
		t.Errorf("the victim: %v, deleted at %v; want it kept", err, live.DeletionTimestamp)
	}
	for _, c := range live.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			t.Errorf("the victim was evicted: %+v", c)
		}
	}
	absent(t, binding(n.ns, "theirs"))
}
