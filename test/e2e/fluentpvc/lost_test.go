//go:build e2e

package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// The volume of a claim is deleted by force. The binding says so until the data is given up.
func TestFluentPVCVolumeLost(t *testing.T) {
	t.Parallel()
	v := newVolume(t, nil)
	deleteByForce(t, cluster.Admin, &corev1.PersistentVolume{ObjectMeta: objectMeta("", v.getClaim(t).Spec.VolumeName)})
	b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingUnknown, patience)
	for _, kind := range []string{sondev1.ConditionClaimCreated, sondev1.ConditionFinalized} {
		wantCondition(t, b, kind, sondev1.ReasonClaimLost, "")
	}
	wantCondition(t, b, sondev1.ConditionClaimCreated, sondev1.ReasonClaimLost, "kubectl sonde fluentpvc discard "+v.claim+" -n "+v.ns)
	cluster.DeleteNow(t, v.pod)
	v.discard(t)
}

// A claim is deleted by force, past the policy that protects it. The binding says that the data is lost, until it is discarded.
func TestFluentPVCClaimDeleted(t *testing.T) {
	t.Parallel()
	for name, podToo := range map[string]bool{"the Pod stays": false, "with its Pod": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVolume(t, nil)
			if podToo {
				deleteByForce(t, cluster.Admin, v.pod)
			}
			deleteByForce(t, cluster.As(t, exempt), v.getClaim(t))
			b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingDataLost, patience)
			wantCondition(t, b, sondev1.ConditionClaimCreated, sondev1.ReasonClaimLost, "before its data was processed")
			cluster.DeleteNow(t, v.pod)
			v.discard(t)
		})
	}
}

// A binding is deleted, past the policy that protects it. The operator makes it again, and processes the data.
func TestFluentPVCBindingDeleted(t *testing.T) {
	t.Parallel()
	t.Run("while the Pod runs", func(t *testing.T) {
		t.Parallel()
		v := newVolume(t, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
		v.deleteBinding(t)
		v.awaitNewBinding(t, sondev1.BindingReady)
		cluster.DeleteNow(t, v.pod)
		b := cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobSucceeded, patience)
		if log, want := cluster.FinalizerLog(t, b), expected(1000); !strings.Contains(log, want) {
			t.Errorf("the finalizer read %q, want SHA-256 %s", log, want)
		}
		v.discard(t)
	})
	t.Run("after the Pod", func(t *testing.T) {
		t.Parallel()
		v := newVolume(t, idle)
		cluster.DeleteNow(t, v.pod)
		cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobApplied, patience)
		v.deleteBinding(t)
		v.awaitNewBinding(t, sondev1.BindingFinalizerJobApplied)
		v.discard(t)
	})
	t.Run("after the Pod and the FluentPVC", func(t *testing.T) {
		t.Parallel()
		v := newVolume(t, idle)
		cluster.DeleteNow(t, v.f)
		cluster.DeleteNow(t, v.pod)
		cluster.AwaitBinding(t, v.ns, v.claim, sondev1.BindingFinalizerJobApplied, patience)
		v.deleteBinding(t)
		c := v.getClaim(t)
		cluster.Eventually(t, patience, "an Event on the claim", func(ctx context.Context) error {
			notes, err := cluster.Events(ctx, c, "BindingLost")
			for _, want := range []string{"FluentPVC " + v.f.Name + " was deleted, too: create it again", "kubectl sonde fluentpvc discard " + v.claim + " -n " + v.ns} {
				if !strings.Contains(strings.Join(notes, "\n"), want) {
					return errors.Join(err, fmt.Errorf("the Events %q do not say %q", notes, want))
				}
			}
			return err
		})
		if c = v.getClaim(t); !c.DeletionTimestamp.IsZero() {
			t.Errorf("the claim was deleted at %s", c.DeletionTimestamp)
		}
		cluster.FluentPVC(t, v.ns, idle)
		v.awaitNewBinding(t, sondev1.BindingFinalizerJobApplied)
		v.discard(t)
	})
}

// deleteBinding deletes the binding as the control plane may.
func (v volume) deleteBinding(t *testing.T) {
	t.Helper()
	b := &sondev1.FluentPVCBinding{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: v.ns, Name: v.claim}, b); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Admin.Delete(t.Context(), b.DeepCopy()); err == nil {
		t.Error("an admin may delete a binding, want a refusal")
	}
	if err := cluster.As(t, exempt).Delete(t.Context(), b, client.Preconditions{UID: &b.UID}); err != nil {
		t.Fatal(err)
	}
}

// awaitNewBinding waits until the binding is made again and has the phase, and asserts that the claim is still the same.
func (v volume) awaitNewBinding(t *testing.T, phase sondev1.BindingPhase) {
	t.Helper()
	b := cluster.AwaitBinding(t, v.ns, v.claim, phase, patience)
	c := v.getClaim(t)
	if c.Labels[sondev1.LabelUID] == string(b.UID) || !c.DeletionTimestamp.IsZero() {
		t.Errorf("claim of binding %s, deleted at %v: want the claim of the deleted binding, and not of %s", c.Labels[sondev1.LabelUID], c.DeletionTimestamp, b.UID)
	}
}
