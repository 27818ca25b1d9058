//go:build e2e

package security

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A user who changes an annotation of their own capture all the time does not keep it from its end: each change has a new
// resourceVersion, but the manager writes the status.
func TestAttackBusyObject(t *testing.T) {
	const duration, late = 5 * time.Second, time.Minute
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	pc := cluster.Capture(t, mallory, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: duration.String()})
	changes, conflicts := untilDone(t, mallory, pc, func() {
		t.Run("protected", func(t *testing.T) {
			cluster.AwaitFinal(t, pc, duration+late)
			if s := pc.Status; s.Phase != sondev1.PhaseCompleted || len(s.Pods) != 1 || s.Pods[0].Reason != sondev1.ReasonDuration {
				t.Errorf("%s, entries %+v; want Completed after its duration", s.Phase, s.Pods)
			}
		})
	})
	t.Run("control", func(t *testing.T) {
		t.Logf("%d changes; %d of %d patches with the version of a read before met one", changes, conflicts.met, conflicts.tried)
		if conflicts.met < conflicts.tried*9/10 || conflicts.tried == 0 {
			t.Errorf("%d of %d patches met a change, want 9 of 10; otherwise the protected half proves nothing", conflicts.met, conflicts.tried)
		}
	})
}

// collisions counts patches with the resourceVersion of a read, as a manager makes them, and those that met a change since.
type collisions struct{ tried, met int }

// untilDone changes an annotation of a capture as fast as the API server allows while act runs. It counts the changes.
func untilDone(t *testing.T, user client.Client, pc *sondev1.PacketCapture, act func()) (int64, collisions) {
	t.Helper()
	const clients, between = 8, 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changes atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			mine := pc.DeepCopy()
			for n := 0; ctx.Err() == nil; n++ {
				if user.Patch(ctx, mine, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"mine":"%d"}}}`, n))) == nil {
					changes.Add(1)
				}
			}
		})
	}
	var found collisions
	running.Go(func() {
		read := pc.DeepCopy()
		for ctx.Err() == nil {
			if user.Get(ctx, client.ObjectKeyFromObject(pc), read) != nil {
				continue
			}
			time.Sleep(between) // as long as a pass, and the watch before it, may take
			patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"mine":"x"}}}`, read.ResourceVersion)
			err := user.Patch(ctx, read, client.RawPatch(types.MergePatchType, patch))
			if err == nil || apierrors.IsConflict(err) {
				found.tried++
			}
			if apierrors.IsConflict(err) {
				found.met++
			}
		}
	})
	act()
	cancel()
	running.Wait()
	return changes.Load(), found
}
