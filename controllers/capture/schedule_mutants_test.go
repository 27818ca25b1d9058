package capture

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/test/memapi"
)

// TestSchedulesFindBugs breaks the manager in ways in which controllers have been broken before. Each must be found, by the
// schedules from a seed on that once found it soon.
func TestSchedulesFindBugs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		mutate func(*replica)
		want   string // part of the broken invariant
		from   uint64 // seed of the first schedule, if not 1
		only   string // disturbance without which the bug does not show
	}{
		"existing Jobs are not read": {mutate: func(m *replica) {
			m.r.Live = memapi.Mutant{Client: m.client(true), OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
				if k := memapi.KeyOf(m.s.api.Scheme, o); k.Kind == "Job" && !isTyped(o) {
					return apierrors.NewNotFound(memapi.Resource("Job"), key.Name)
				}
				return c.Get(ctx, key, o)
			}}
		}, want: "is Job number 2", from: 84},
		"the status is patched without a lock": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnPatch: memapi.WithoutLock}
		}, want: " was "},
		"a stale cache is trusted": {mutate: func(m *replica) {
			live := m.client(true)
			live.Stale = true
			m.r.Live = live
		}, want: "is Job number 2", from: 22},
		"nothing is swept": {mutate: func(m *replica) {
			m.r.Sweeper.Client = memapi.Mutant{Client: m.client(false), OnDelete: func(context.Context, client.Client, client.Object) error { return nil }}
		}, want: "is still there"},
		"a second Job stays": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnDelete: func(ctx context.Context, c client.Client, o client.Object) error {
				if a := m.s.agentOf(o.GetUID()); a != nil && m.s.others(a) > 0 {
					return nil
				}
				return c.Delete(ctx, o)
			}}
		}, want: "has had two Jobs"},
		"objects are swept by name and not by UID": {mutate: func(m *replica) {
			m.r.Sweeper.Live = memapi.Mutant{
				Client: m.client(true),
				OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
					err := c.Get(ctx, key, o)
					o.SetUID("")
					return err
				},
			}
		}, want: "deletes", from: 84},
		"a right is cached for too long": {mutate: func(m *replica) {
			m.r.Access = access.NewCached(replicaReviews{m}, m.s.clock, time.Hour)
		}, want: "was not admitted", from: 149},
		"stamps are not verified": {mutate: func(m *replica) { m.r.Stamps = anyStamp{StampKey(scheduleKey), m} }, want: "was not admitted"},
		"a running account counts as complete": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnList: func(ctx context.Context, c client.Client, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if pods, ok := list.(*corev1.PodList); ok {
					completeAccounts(pods)
				}
				return err
			}}
		}, want: "no probe has that"},
		"the end does not read the target's Pods live": {mutate: func(m *replica) {
			m.r.Live = memapi.Mutant{Client: m.client(true), OnList: func(ctx context.Context, c client.Client, list client.ObjectList, opts ...client.ListOption) error {
				if o := (&client.ListOptions{}).ApplyOptions(opts); o.Namespace == "shop" {
					return m.client(false).List(ctx, list, opts...)
				}
				return c.List(ctx, list, opts...)
			}}
		}, want: "is in no entry", only: "a Pod joins", from: 1025},
		"Pods that outlast their ReplicaSet are not found": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
				if memapi.KeyOf(m.s.api.Scheme, o).Kind == "ReplicaSet" {
					return nil // with another UID and no owner
				}
				return c.Get(ctx, key, o)
			}}
		}, want: "is in no entry", only: "the workload is deleted"},
		"a gap of the watch is not stated": {
			mutate: func(m *replica) { m.silent = true },
			want:   "is in no entry", only: "the watch of Pods is interrupted for too long",
		},
		"Pods that come and go are not recorded": {mutate: func(m *replica) { m.forgetful = true }, want: "is in no entry", only: "a Pod comes and goes"},
		"a pass is not requeued":                 {mutate: func(m *replica) { m.queue.NoRequeue = true }, want: "is still there"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memapi.WantBug(t, tc.want, tc.from, func(t *testing.T, seed uint64) *memapi.Record {
				t.Helper()
				s := newSchedule(t, seed)
				s.mutate, s.only = tc.mutate, tc.only
				s.random()
				return &s.Record
			})
		})
	}
}

// isTyped reports whether the caller reads the whole object, not only its metadata.
func isTyped(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Empty() }

// completeAccounts marks the account of each ended probe as complete.
func completeAccounts(pods *corev1.PodList) {
	for i := range pods.Items {
		for j := range pods.Items[i].Status.ContainerStatuses {
			ended := pods.Items[i].Status.ContainerStatuses[j].State.Terminated
			if ended == nil {
				continue
			}
			a, err := account.Parse([]byte(ended.Message))
			if err != nil {
				continue
			}
			a.State, a.Complete = account.StateDone, true
			if b, err := a.Marshal(); err == nil {
				ended.Message = string(b)
			}
		}
	}
}

// anyStamp accepts captures without a stamp.
type anyStamp struct {
	StampKey
	m *replica
}

func (a anyStamp) Verify(capture sondev1.Capture) (stamp.Claim, error) {
	ns := a.m.s.api.Objects[memapi.KeyFor("Namespace", "", capture.GetNamespace())]
	claim := stamp.Claim{Requester: access.Requester{Username: "mallory"}}
	if ns != nil {
		claim.TargetNamespaceUID = string(ns.GetUID())
	}
	return claim, nil
}
