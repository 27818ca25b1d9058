//go:build e2e

package security

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// hostileFilter takes more than a second to compile. Each one differs.
func hostileFilter() string {
	parts := make([]string, 330)
	for i := range parts {
		parts[i] = fmt.Sprintf("port %d", i+1)
	}
	parts[0] = fmt.Sprintf("port %d", 1000+rand.IntN(60000))
	return strings.Join(parts, " or ")
}

// tryFilter has a PacketCapture with the filter admitted, and not stored.
func tryFilter(ctx context.Context, c client.Client, ns, filter string) (time.Duration, error) {
	begin := time.Now()
	err := c.Create(ctx, &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "filter-"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: filter},
	}, client.DryRunAll)
	return time.Since(begin), err
}

// Users who send filters that take long to compile delay their own, and no other user's.
func TestAttackHostileFilters(t *testing.T) {
	users := []string{"mallory", "trudy", "alice"}
	clients, namespaces := map[string]client.Client{}, map[string]string{}
	for _, user := range users {
		clients[user], namespaces[user] = cluster.As(t, user), cluster.Namespace(t, nil)
		cluster.Deployment(t, namespaces[user], "sink", 1, "sink")
		cluster.Bind(t, namespaces[user], user, "admin")
	}
	try := func(ctx context.Context, user, filter string) (time.Duration, error) {
		return tryFilter(ctx, clients[user], namespaces[user], filter)
	}
	cluster.Eventually(t, time.Minute, "alice's right to capture", func(ctx context.Context) error {
		_, err := try(ctx, "alice", "tcp port 80")
		return err
	})
	flood, end := context.WithCancel(t.Context())
	var (
		attackers sync.WaitGroup
		refused   atomic.Int64
	)
	defer attackers.Wait()
	defer end()
	for _, user := range users[:2] {
		for range 48 { // of each, at up to two replicas of the manager
			attackers.Go(func() {
				for flood.Err() == nil {
					if _, err := try(flood, user, hostileFilter()); apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "try again") {
						refused.Add(1)
					}
				}
			})
		}
	}
	t.Run("control", func(t *testing.T) {
		cluster.Eventually(t, time.Minute, "attackers' filters refused, because theirs wait", func(context.Context) error {
			if refused.Load() == 0 {
				return errors.New("got none")
			}
			return nil
		})
	})
	// The line is in the log since the replica's first filter. Where the log was rotated meanwhile, it is gone.
	t.Run("confined", func(t *testing.T) {
		for _, p := range cluster.ManagerPods(t) {
			for l := range strings.Lines(logs(t, &p, "manager")) {
				if !strings.Contains(l, "the filter compiler") || !strings.Contains(l, `"restrictions"`) {
					continue
				}
				if t.Log(p.Name, l); !strings.Contains(l, `"landlock":0`) && !strings.Contains(l, `"files":true`) {
					t.Error("the kernel has Landlock, and the filter compiler's files are open")
				}
			}
		}
	})
	t.Run("protected", func(t *testing.T) {
		var took []time.Duration
		for range 100 {
			d, err := try(t.Context(), "alice", "host 10.128.3.17 and tcp port 8080")
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		t.Logf("100 filters of a third user: median %v, longest %v", took[50], took[99])
		if took[50] > time.Second || took[99] > 5*time.Second {
			t.Error("a flood of other users' filters delays them")
		}
	})
}
