//go:build e2e

package security

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/test/cluster"
)

const (
	floodCaptures = 1000
	floodWorkers  = 16
	floodBound    = 100 // the default
	floodSlack    = 10  // which two replicas may admit at the same moment
	victims       = 5
	// victimWithin is far below the 45 s that a capture waited for its Job before namespaces took turns.
	victimWithin = 15 * time.Second
)

// A user who creates captures as fast as the API server takes them does not keep another's from its Job, and has no more of them than
// the bound.
func TestAttackManyCaptures(t *testing.T) {
	mallory := cluster.As(t, "mallory")
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	shop := cluster.Namespace(t, nil)
	cluster.Deployment(t, shop, "web", 1, "idle")
	cluster.ManagerFlag(t, "--max-captures-per-namespace=2") // the others wait, and leave room on the node
	cluster.Eventually(t, time.Minute, "mallory's right to capture", func(ctx context.Context) error {
		return mallory.Create(ctx, floodCapture(ns), client.DryRunAll)
	})
	before := untilJob(t, shop)
	t.Run("protected", func(t *testing.T) {
		admitted, during := floodOf(t, mallory, ns, shop)
		t.Logf("%d captures admitted; a capture has its Job after %v, without the flood %v", admitted, during, before)
		if admitted < floodBound || admitted > floodBound+floodSlack {
			t.Errorf("%d captures admitted, want %d, and at most %d more", admitted, floodBound, floodSlack)
		}
		if most := slices.Max(during); most > victimWithin {
			t.Errorf("a capture had its Job after %v, want at most %v", most, victimWithin)
		}
	})
	t.Run("control", func(t *testing.T) {
		cluster.ManagerFlag(t, "--"+ceiling.FlagUnfinishedPerNamespace+"=0")
		if err := cluster.Admin.DeleteAllOf(t.Context(), &sondev1.PacketCapture{}, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		admitted, during := floodOf(t, mallory, ns, shop)
		t.Logf("%d captures admitted without the bound; a capture has its Job after %v", admitted, during)
		if admitted <= floodBound+floodSlack {
			t.Errorf("%d captures admitted without the bound; otherwise the protected half proves nothing", admitted)
		}
	})
}

const (
	// nodeResults is the ceiling of the next test, and keptBound the share of the first namespace.
	nodeResults = 8
	keptBound   = nodeResults / 2
)

// A user whose results stay on a node for a week takes no more than their namespace's share of its places: another's capture there
// begins at once, and the user's own when a result is deleted.
func TestAttackKeptResults(t *testing.T) {
	mallory := cluster.As(t, "mallory")
	ns, shop := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "admin")
	node := cluster.NodeNames(t)[0]
	for _, in := range []string{ns, shop} {
		spec := cluster.PodSpec("idle")
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		labels := map[string]string{"app": "web"}
		if err := cluster.Admin.Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	cluster.ManagerFlag(t, fmt.Sprintf("--%s=%d", ceiling.FlagResultsPerNode, nodeResults))
	var captures []*sondev1.PacketCapture
	for range keptBound + 2 {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "kept-"},
			Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "1s", MaxBytes: 65536, RetainFor: "168h"},
		}
		cluster.CreateEventually(t, mallory, pc)
		captures = append(captures, pc)
		awaitKept(t, pc)
	}
	if kept, waiting := keptOf(captures); kept != keptBound || waiting != 2 {
		t.Errorf("%d captures ended and %d wait for a place, want %d and 2", kept, waiting, keptBound)
	}
	t.Logf("another's captures have their Jobs after %v", untilJob(t, shop))
	cluster.DeleteNow(t, captures[0])
	others := captures[keptBound:] // either of them may get the place
	cluster.Eventually(t, time.Minute, "the end of a capture that waited", func(ctx context.Context) error {
		for _, pc := range others {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
				return err
			}
		}
		if kept, _ := keptOf(others); kept == 0 {
			return errors.New("both still wait")
		}
		return nil
	})
	t.Run("control", func(t *testing.T) {
		cluster.ManagerFlag(t, "--"+ceiling.FlagResultsPerNode+"=0")
		for _, pc := range others {
			cluster.AwaitFinal(t, pc, 2*time.Minute)
		}
	})
}

// existingBound is the ceiling of the next test.
const existingBound = 3

// A user whose captures end at once has no more of them in the manager's cache than the bound. Another namespace can capture.
func TestAttackEndedCaptures(t *testing.T) {
	mallory := cluster.As(t, "mallory")
	ns, shop := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "admin")
	for _, in := range []string{ns, shop} {
		cluster.Deployment(t, in, "web", 1, "idle")
	}
	ended := func(c client.Client, in string) *sondev1.PacketCapture {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, GenerateName: "ended-"},
			Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "1s"},
		}
		cluster.CreateEventually(t, c, pc)
		cluster.AwaitFinal(t, pc, time.Minute)
		return pc
	}
	flag := "--" + ceiling.FlagExistingPerNamespace
	cluster.ManagerFlag(t, fmt.Sprintf("%s=%d", flag, existingBound))
	var last *sondev1.PacketCapture
	for range existingBound {
		last = ended(mallory, ns)
	}
	more := func() *sondev1.PacketCapture {
		return &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "more-"}, Spec: last.Spec}
	}
	t.Run("protected", func(t *testing.T) {
		if err := mallory.Create(t.Context(), more()); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("capture number %d: %v, want it refused because of %s", existingBound+1, err, flag)
		}
		ended(cluster.Admin, shop)
		cluster.DeleteNow(t, last)
		ended(mallory, ns)
	})
	t.Run("control", func(t *testing.T) {
		cluster.ManagerFlag(t, flag+"=0")
		ended(mallory, ns)
	})
}

// awaitKept waits until a capture has ended or waits for a place for its result.
func awaitKept(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	cluster.Eventually(t, 2*time.Minute, "the capture's end, or its waiting", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if kept, waiting := keptOf([]*sondev1.PacketCapture{pc}); kept+waiting == 0 {
			return fmt.Errorf("it is %q", pc.Status.Phase)
		}
		return nil
	})
}

// keptOf counts the captures that are Completed, and those that wait for a place for their result.
func keptOf(captures []*sondev1.PacketCapture) (kept, waiting int) {
	for _, pc := range captures {
		switch {
		case pc.Status.Phase == sondev1.PhaseCompleted:
			kept++
		case len(pc.Status.Pods) == 1 && pc.Status.Pods[0].Reason == sondev1.ReasonCeilingResults:
			waiting++
		}
	}
	return kept, waiting
}

func floodCapture(ns string) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "flood-"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", RetainFor: "10s"},
	}
}

// floodOf creates captures in ns while it measures untilJob in shop, and returns how many were admitted.
func floodOf(t *testing.T, mallory client.Client, ns, shop string) (admitted int, during []time.Duration) {
	t.Helper()
	var created, next atomic.Int32
	var attackers sync.WaitGroup
	for range floodWorkers {
		attackers.Go(func() {
			for next.Add(1) <= floodCaptures {
				err := mallory.Create(t.Context(), floodCapture(ns))
				switch {
				case err == nil:
					created.Add(1)
				case !strings.Contains(err.Error(), "--"+ceiling.FlagUnfinishedPerNamespace) && !strings.Contains(err.Error(), "--"+ceiling.FlagExistingPerNamespace):
					t.Logf("refused for another reason: %v", err)
				}
			}
		})
	}
	during = untilJob(t, shop)
	attackers.Wait()
	return int(created.Load()), append(during, untilJob(t, shop)...)
}

// untilJob returns how long captures of the Deployment web take from their creation to their Job, one after another.
func untilJob(t *testing.T, ns string) []time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range victims {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: fmt.Sprintf("victim-%d-", i)},
			Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "1m", RetainFor: "10s"},
		}
		cluster.CreateEventually(t, cluster.Admin, pc)
		begin := time.Now()
		cluster.Eventually(t, 2*time.Minute, "the victim's Job", func(context.Context) error {
			if len(cluster.JobsOf(t, pc)) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		took = append(took, time.Since(begin).Truncate(time.Millisecond))
		cluster.DeleteNow(t, pc)
	}
	return took
}
