//go:build e2e

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// signed returns the name of a claim that does not exist, and the annotation of a Pod for it. Users get both by a dry run.
func (n tenant) signed(t *testing.T, by client.Client) (claim, annotation string) {
	t.Helper()
	p := n.waiter("dry")
	cluster.Eventually(t, 15*time.Second, "a signed name", func(ctx context.Context) error {
		p = n.waiter("dry")
		return by.Create(ctx, p, client.DryRunAll)
	})
	return cluster.ClaimOf(t, p), p.Annotations[sondev1.AnnotationClaim]
}

// forged returns a Pod that the webhook does not see, because it names no FluentPVC yet: with a claim and a container like a sidecar.
func (n tenant) forged(name, claim string) *corev1.Pod {
	p := n.waiter(name)
	delete(p.Annotations, sondev1.KeyFluentPVC)
	p.Spec.Volumes = []corev1.Volume{{Name: n.f.Spec.PVCVolumeName, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	sidecar := *p.Spec.Containers[0].DeepCopy()
	sidecar.Name = n.f.Spec.SidecarContainerTemplate.Name
	p.Spec.Containers = append(p.Spec.Containers, sidecar)
	return p
}

// annotateLater makes a Pod name a FluentPVC and carry an annotation for a claim, after its creation.
func annotateLater(t *testing.T, by client.Client, p *corev1.Pod, f, annotation string) {
	t.Helper()
	patch := metadata(t, "annotations", map[string]string{sondev1.KeyFluentPVC: f, sondev1.AnnotationClaim: annotation})
	if err := by.Patch(t.Context(), p, mergePatch(patch)); err != nil {
		t.Fatal(err)
	}
}

func absent(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s: %v, want none", o, o.GetName(), err)
		}
	}
}

func binding(ns, name string) *sondev1.FluentPVCBinding {
	return &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// The operator makes claims by an annotation, which users can write into their running Pods. It makes none whose name it has not
// signed for this namespace, and only for a Pod that names the FluentPVC and has its sidecar.
func TestAttackFluentPVCForgedAnnotations(t *testing.T) {
	n, other := newTenant(t, nil), newTenant(t, nil)
	for _, ns := range []string{n.ns, other.ns} {
		cluster.Bind(t, ns, "mallory", "edit")
	}
	mallory := cluster.As(t, "mallory")
	another := cluster.FluentPVC(t, n.ns+"-2", nil)
	theirs := ownClaim(n.ns, "theirs", nil)
	cluster.Create(t, theirs)
	claims := map[string]*corev1.Pod{}
	attack := func(what string, in tenant, claim, f, annotation string, change func(*corev1.Pod)) {
		p := in.forged(strings.ToLower(strings.ReplaceAll(what, " ", "-")), claim)
		if change != nil {
			change(p)
		}
		cluster.CreateEventually(t, mallory, p)
		annotateLater(t, mallory, p, f, annotation)
		claims[what] = p
	}
	made := n.f.Name + "-01234567-abcdefghij"
	attack("made up", n, made, n.f.Name, n.f.Name+"/"+made+"/"+strings.Repeat("00", 32), nil)
	claim, signature := n.signed(t, mallory)
	attack("of another namespace", other, claim, n.f.Name, signature, nil)
	attack("of another claim", n, theirs.Name, n.f.Name, signature, nil)
	attack("that names another claim", n, theirs.Name, n.f.Name, strings.Replace(signature, claim, theirs.Name, 1), nil)
	claim, signature = n.signed(t, mallory)
	attack("of another FluentPVC", n, claim, another.Name, signature, nil)
	claim, signature = n.signed(t, mallory)
	attack("without a sidecar", n, claim, n.f.Name, signature, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] })
	t.Run("control: a signed name of this namespace", func(t *testing.T) {
		claim, signature := n.signed(t, mallory)
		attack("signed", n, claim, n.f.Name, signature, nil)
		delete(claims, "signed")
		cluster.AwaitBinding(t, n.ns, claim, sondev1.BindingReady, 30*time.Second)
	})
	bound(t, mallory, other.waiter("after")) // so the operator has looked at the Pod before, too
	for what, p := range claims {
		t.Run("protected: "+what, func(t *testing.T) {
			absent(t, binding(p.Namespace, cluster.ClaimOf(t, p)))
			if c := cluster.ClaimOf(t, p); c != theirs.Name {
				absent(t, ownClaim(p.Namespace, c, nil))
			}
		})
	}
	for what, want := range map[string]string{"of another FluentPVC": "does not name FluentPVC", "without a sidecar": "the Pod has no sidecar"} {
		t.Run("protected: the Event of "+what, func(t *testing.T) { awaitEvent(t, claims[what], "ClaimRefused", want) })
	}
	stay(t, theirs)
}

func awaitEvent(t *testing.T, o client.Object, reason, want string) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "Event "+reason, func(ctx context.Context) error {
		notes, err := cluster.Events(ctx, o, reason)
		if err == nil && !strings.Contains(strings.Join(notes, "\n"), want) {
			err = fmt.Errorf("%q", notes)
		}
		return err
	})
}

// The webhook gives a new Pod a claim of its own, whatever annotation and volumes it carries.
func TestAttackFluentPVCCopiedAnnotation(t *testing.T) {
	n := newTenant(t, nil)
	cluster.Bind(t, n.ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	victim := n.waiter("victim")
	b := bound(t, cluster.Admin, victim)
	theirs := ownClaim(n.ns, "theirs", nil)
	cluster.Create(t, theirs)
	for what, tc := range map[string]struct{ claim, annotation string }{
		"a copy":                       {b.Name, victim.Annotations[sondev1.AnnotationClaim]},
		"a copy with another volume":   {theirs.Name, victim.Annotations[sondev1.AnnotationClaim]},
		"a made-up one":                {theirs.Name, n.f.Name + "/" + theirs.Name + "/00"},
		"one without FluentPVC, empty": {theirs.Name, ""},
	} {
		t.Run("protected: "+what, func(t *testing.T) {
			p := n.forged("copy", tc.claim)
			p.Annotations[sondev1.KeyFluentPVC], p.Annotations[sondev1.AnnotationClaim] = n.f.Name, tc.annotation
			if err := mallory.Create(t.Context(), p, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if c := cluster.ClaimOf(t, p); c == b.Name || c == theirs.Name || len(p.Spec.Volumes) != len(victim.Spec.Volumes) {
				t.Errorf("the Pod has claim %s, and %d volumes; want a claim of its own, and no other", c, len(p.Spec.Volumes))
			}
		})
	}
	t.Run("control: a signed name that is free stays", func(t *testing.T) {
		claim, signature := n.signed(t, mallory)
		p := n.forged("copy", claim)
		p.Annotations[sondev1.KeyFluentPVC], p.Annotations[sondev1.AnnotationClaim] = n.f.Name, signature
		if err := mallory.Create(t.Context(), p, client.DryRunAll); err != nil || cluster.ClaimOf(t, p) != claim {
			t.Errorf("claim %s, error %v; want %s", cluster.ClaimOf(t, p), err, claim)
		}
	})
	stay(t, theirs, b)
}

// A Pod names another FluentPVC after its creation. Its volume stays with the first.
func TestAttackFluentPVCRenamed(t *testing.T) {
	n := newTenant(t, nil)
	cluster.Bind(t, n.ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	another := cluster.FluentPVC(t, n.ns+"-2", nil)
	p := n.waiter("renamed")
	b := bound(t, mallory, p)
	if err := mallory.Patch(t.Context(), p, mergePatch(metadata(t, "annotations", map[string]string{sondev1.KeyFluentPVC: another.Name}))); err != nil {
		t.Fatal(err)
	}
	control := tenant{n.ns, another}.waiter("control") // names it from the beginning
	if got := bound(t, mallory, control).Spec.FluentPVC.Name; got != another.Name {
		t.Errorf("control: the binding is of %s, want %s", got, another.Name)
	}
	var all sondev1.FluentPVCBindingList
	if err := cluster.Admin.List(t.Context(), &all, client.InNamespace(n.ns)); err != nil || len(all.Items) != 2 {
		t.Errorf("%d bindings, error %v; want one for each Pod", len(all.Items), err)
	}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil || b.Spec.FluentPVC.Name != n.f.Name {
		t.Errorf("the binding is of %s, error %v; want it unchanged", b.Spec.FluentPVC.Name, err)
	}
}

// Objects of users with the names or the labels of Sonde's are never adopted and never deleted.
func TestAttackFluentPVCNamesAndLabels(t *testing.T) {
	n := newTenant(t, nil)
	cluster.Bind(t, n.ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	victim := n.waiter("victim")
	b := bound(t, cluster.Admin, victim)
	live := &corev1.PersistentVolumeClaim{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(b), live); err != nil {
		t.Fatal(err)
	}
	t.Run("protected: the labels", func(t *testing.T) {
		mine := ownClaim(n.ns, "labelled", live.Labels)
		wantRefusal(t, "a claim with them", mallory.Create(t.Context(), mine), "only Sonde creates PersistentVolumeClaims")
		mine = ownClaim(n.ns, "labelled", map[string]string{"app": "mine"}) // the control
		cluster.CreateEventually(t, mallory, mine)
		wantRefusal(t, "a claim that gets them", mallory.Patch(t.Context(), mine, mergePatch(metadata(t, "labels", live.Labels))), "only Sonde changes")
	})
	t.Run("a controller's claims", func(t *testing.T) { ephemeralClaims(t, mallory, n.ns, live.Labels) })
	t.Run("protected: a claim with its name", func(t *testing.T) { taken(t, mallory, n) })
	// Past the policy.
	mine, job := ownClaim(n.ns, "mine", nil), jobOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.ns, Name: "mine"}, Spec: cluster.PodSpec("idle")})
	job.Labels, job.Annotations, job.Spec.Suspend, job.Spec.Template.Spec.RestartPolicy = live.Labels, live.Annotations, new(true), corev1.RestartPolicyNever
	cluster.Create(t, mine)
	cluster.CreateEventually(t, mallory, job)
	if err := cluster.As(t, collector).Patch(t.Context(), mine, mergePatch(metadata(t, "labels", live.Labels))); err != nil {
		t.Fatal(err)
	}
	if err := cluster.As(t, collector).Patch(t.Context(), mine, mergePatch(metadata(t, "annotations", live.Annotations))); err != nil {
		t.Fatal(err)
	}
	cluster.DeleteNow(t, victim)
	cluster.Gone(t, b, time.Minute)
	t.Run("control: Sonde's claim", func(t *testing.T) { absent(t, live) })
	t.Run("protected: a claim and a Job that look like Sonde's", func(t *testing.T) {
		stay(t, mine, job)
		absent(t, binding(n.ns, mine.Name))
	})
}

// ephemeralClaims gives a template of claims labels: the controller of ephemeral volumes creates them.
func ephemeralClaims(t *testing.T, mallory client.Client, ns string, labels map[string]string) {
	t.Helper()
	pod := func(name string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: cluster.PodSpec("idle")}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e/attack"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: ownClaim("", "", nil).Spec},
		}}}}
		return p
	}
	evil := pod("evil", labels)
	cluster.CreateEventually(t, mallory, evil)
	cluster.CreateEventually(t, mallory, pod("control", map[string]string{"app": "mine"}))
	cluster.Eventually(t, 30*time.Second, "control: a claim with another label", func(ctx context.Context) error {
		return cluster.Admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "control-data"}, &corev1.PersistentVolumeClaim{})
	})
	awaitEvent(t, evil, "FailedBinding", "only Sonde creates PersistentVolumeClaims")
	absent(t, ownClaim(ns, "evil-data", nil))
}

// taken creates a claim under a name that the operator has signed, before the Pod.
func taken(t *testing.T, mallory client.Client, n tenant) {
	t.Helper()
	claim, signature := n.signed(t, mallory)
	mine := ownClaim(n.ns, claim, nil)
	cluster.CreateEventually(t, mallory, mine)
	p := n.forged("taken", claim)
	cluster.CreateEventually(t, mallory, p)
	annotateLater(t, mallory, p, n.f.Name, signature)
	b := &sondev1.FluentPVCBinding{}
	cluster.Eventually(t, 30*time.Second, "condition ClaimConflict", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: n.ns, Name: claim}, b); err != nil {
			return err
		}
		for _, c := range b.Status.Conditions {
			if c.Reason == sondev1.ReasonClaimConflict {
				return nil
			}
		}
		return fmt.Errorf("phase %s, conditions %+v", b.Status.Phase, b.Status.Conditions)
	})
	cluster.DeleteNow(t, p)
	cluster.Gone(t, b, time.Minute)
	stay(t, mine)
}

// A cluster admin closes a namespace. A name that the operator signed before opens it no more.
func TestAttackFluentPVCClosedNamespace(t *testing.T) {
	n, open := newTenant(t, nil), newTenant(t, nil)
	for _, ns := range []string{n.ns, open.ns} {
		cluster.Bind(t, ns, "mallory", "edit")
	}
	mallory := cluster.As(t, "mallory")
	attack := func(in tenant, closed bool) *corev1.Pod {
		claim, signature := in.signed(t, mallory)
		if closed {
			label := metadata(t, "labels", map[string]string{sondev1.LabelOptOut: "true"})
			if err := cluster.Admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.ns}}, mergePatch(label)); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, "a new Pod", mallory.Create(t.Context(), in.waiter("new")), sondev1.LabelOptOut)
		}
		p := in.forged("later", claim)
		cluster.CreateEventually(t, mallory, p)
		annotateLater(t, mallory, p, in.f.Name, signature)
		return p
	}
	p := attack(n, true)
	t.Run("control: the same in an open namespace", func(t *testing.T) {
		cluster.AwaitBinding(t, open.ns, cluster.ClaimOf(t, attack(open, false)), sondev1.BindingReady, 30*time.Second)
	})
	t.Run("protected", func(t *testing.T) {
		awaitEvent(t, p, "ClaimRefused", sondev1.LabelOptOut)
		absent(t, binding(n.ns, cluster.ClaimOf(t, p)), ownClaim(n.ns, cluster.ClaimOf(t, p), nil))
	})
}
