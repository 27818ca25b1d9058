package capture

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// mutant replaces calls of a manager's client; nil keeps a call.
type mutant struct {
	replicaClient
	get    func(context.Context, replicaClient, client.ObjectKey, client.Object) error
	list   func(context.Context, replicaClient, client.ObjectList, ...client.ListOption) error
	delete func(context.Context, replicaClient, client.Object) error
	patch  func(client.Object, client.Patch) client.Patch
}

func (c mutant) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if c.get != nil {
		return c.get(ctx, c.replicaClient, key, o)
	}
	return c.replicaClient.Get(ctx, key, o, opts...)
}

func (c mutant) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if c.list != nil {
		return c.list(ctx, c.replicaClient, list, opts...)
	}
	return c.replicaClient.List(ctx, list, opts...)
}

func (c mutant) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if c.delete != nil {
		return c.delete(ctx, c.replicaClient, o)
	}
	return c.replicaClient.Delete(ctx, o, opts...)
}

func (c mutant) Status() client.SubResourceWriter {
	return mutantStatus{replicaStatus{c: c.replicaClient}, c.patch}
}

type mutantStatus struct {
	replicaStatus
	patch func(client.Object, client.Patch) client.Patch
}

func (w mutantStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if w.patch != nil {
		p = w.patch(o, p)
	}
	return w.replicaStatus.Patch(ctx, o, p, opts...)
}

// TestSchedulesFindBugs breaks the manager in ways in which controllers have been broken before. Each must be found, by the
// schedules from a seed on that once found it soon.
func TestSchedulesFindBugs(t *testing.T) {
	cases := map[string]struct {
		mutate func(*replica)
		want   string // part of the broken invariant
		from   uint64 // seed of the first schedule, if not 1
		only   string // disturbance without which the bug does not show
	}{
		"existing Jobs are not read": {mutate: func(m *replica) {
			m.r.Live = mutant{replicaClient: replicaClient{m: m, live: true}, get: func(ctx context.Context, c replicaClient, key client.ObjectKey, o client.Object) error {
				if k := memapi.KeyOf(m.s.api.Scheme, o); k.Kind == "Job" && !isTyped(o) {
					return apierrors.NewNotFound(memapi.Resource("Job"), key.Name)
				}
				return c.Get(ctx, key, o)
			}}
		}, want: "is Job number 2", from: 84},
		"the status is patched without a lock": {mutate: func(m *replica) {
			m.r.Client = mutant{replicaClient: replicaClient{m: m}, patch: withoutLock}
		}, want: " was "},
		"a stale cache is trusted": {mutate: func(m *replica) {
			m.r.Live = replicaClient{m: m, live: true, stale: true}
		}, want: "is Job number 2"},
		"nothing is swept": {mutate: func(m *replica) {
			m.r.Sweeper.Client = mutant{replicaClient: replicaClient{m: m}, delete: func(context.Context, replicaClient, client.Object) error { return nil }}
		}, want: "is still there"},
		"objects are swept by name and not by UID": {mutate: func(m *replica) {
			m.r.Sweeper.Live = mutant{
				replicaClient: replicaClient{m: m, live: true},
				get: func(ctx context.Context, c replicaClient, key client.ObjectKey, o client.Object) error {
					err := c.Get(ctx, key, o)
					o.SetUID("")
					return err
				},
			}
		}, want: "deletes", from: 84},
		"a right is cached for too long": {mutate: func(m *replica) {
			m.r.Access = access.NewCached(replicaReviews{m}, m.s.clock, time.Hour)
		}, want: "was not admitted", from: 74},
		"stamps are not verified": {mutate: func(m *replica) { m.r.Stamps = anyStamp{StampKey(scheduleKey), m} }, want: "was not admitted"},
		"a running account counts as complete": {mutate: func(m *replica) {
			m.r.Client = mutant{replicaClient: replicaClient{m: m}, list: func(ctx context.Context, c replicaClient, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if pods, ok := list.(*corev1.PodList); ok {
					completeAccounts(pods)
				}
				return err
			}}
		}, want: "no probe has that"},
		"the end does not read the target's Pods live": {mutate: func(m *replica) {
			m.r.Live = mutant{replicaClient: replicaClient{m: m, live: true}, list: func(ctx context.Context, c replicaClient, list client.ObjectList, opts ...client.ListOption) error {
				if o := (&client.ListOptions{}).ApplyOptions(opts); o.Namespace == "shop" {
					return replicaClient{m: m}.List(ctx, list, opts...)
				}
				return c.List(ctx, list, opts...)
			}}
		}, want: "is in no entry", only: "a Pod joins", from: 970},
		"a gap of the watch is not stated": {
			mutate: func(m *replica) { m.silent = true },
			want:   "is in no entry", only: "the watch of Pods is interrupted for too long",
		},
		"Pods that come and go are not recorded": {mutate: func(m *replica) { m.forgetful = true }, want: "is in no entry", only: "a Pod comes and goes"},
		"a pass is not requeued":                 {mutate: func(m *replica) { m.noRequeue = true }, want: "is still there"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 400
			for i := range uint64(most) {
				seed := max(tc.from, 1) + i
				s := newSchedule(t, seed)
				s.mutate, s.only = tc.mutate, tc.only
				s.random()
				if s.broken != "" && strings.Contains(s.broken, tc.want) {
					t.Logf("seed %d: %s", seed, s.broken)
					return
				}
			}
			t.Errorf("%d schedules did not break the invariant", most)
		})
	}
}

// isTyped reports whether the caller reads the whole object, not only its metadata.
func isTyped(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Empty() }

// withoutLock returns the same patch for any version of the object.
func withoutLock(o client.Object, p client.Patch) client.Patch {
	var whole map[string]json.RawMessage
	data, err := p.Data(o)
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err != nil {
		return p
	}
	delete(whole, "metadata")
	if data, err = json.Marshal(whole); err != nil {
		return p
	}
	return client.RawPatch(types.MergePatchType, data)
}

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
