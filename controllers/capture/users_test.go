package capture

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
)

func userLabel(user int64) map[string]string {
	return map[string]string{sondev1.LabelKeeperUser: strconv.FormatInt(user, 10)}
}

// TestKeeperUsersAreUnique checks that a Job gets another user if its first one is in use: by another Job, by a Pod that
// outlives its Job, or by an assignment that the cache does not show.
func TestKeeperUsersAreUnique(t *testing.T) {
	t.Parallel()
	const pod = types.UID("pod-uid")
	first, second := agentjob.KeeperUser(captureUID, pod, 0), agentjob.KeeperUser(captureUID, pod, 1)
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "other", Labels: userLabel(first)}
	}
	for name, tc := range map[string]struct {
		objects  []client.Object
		assigned *KeeperUsers
		want     int64
	}{
		"free":                          {want: first},
		"of another Job":                {objects: []client.Object{&batchv1.Job{ObjectMeta: meta(operatorNamespace)}}, want: second},
		"of a Pod that ends":            {objects: []client.Object{&corev1.Pod{ObjectMeta: meta(operatorNamespace)}}, want: second},
		"a label of a user":             {objects: []client.Object{&corev1.Pod{ObjectMeta: meta("shop")}}, want: first},
		"assigned, not yet cached":      {assigned: &KeeperUsers{owners: map[int64]string{first: "other/pod"}}, want: second},
		"assigned to this Job, retried": {assigned: &KeeperUsers{owners: map[int64]string{first: string(captureUID) + "/" + string(pod)}}, want: first},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), tc.objects...)
			users := tc.assigned
			if users == nil {
				users = &KeeperUsers{}
			}
			if got, err := users.Assign(t.Context(), w.r.Client, operatorNamespace, captureUID, pod); err != nil || got != tc.want {
				t.Errorf("user %d (%v), want %d", got, err, tc.want)
			}
		})
	}
}

// emptyCache has not seen any Job yet.
type emptyCache struct{ client.Reader }

func (emptyCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// TestKeeperUsersAheadOfTheCache checks that concurrent assignments differ, and that the memory of them is bounded.
func TestKeeperUsersAheadOfTheCache(t *testing.T) {
	t.Parallel()
	users := &KeeperUsers{}
	var mu sync.Mutex
	seen := map[int64]bool{}
	var all sync.WaitGroup
	const workers, each = 8, 500
	for worker := range workers {
		all.Go(func() {
			for i := range each {
				user, err := users.Assign(t.Context(), emptyCache{}, operatorNamespace, types.UID(fmt.Sprint(worker)), types.UID(fmt.Sprint(i)))
				mu.Lock()
				if err != nil || seen[user] {
					t.Errorf("user %d (%v) was assigned before: %t", user, err, seen[user])
				}
				seen[user] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(users.owners) != usersRemembered || len(users.last) != usersRemembered {
		t.Errorf("remembers %d users in %d places, want %d", len(users.owners), len(users.last), usersRemembered)
	}
}

// TestEachJobHasAUserOfItsOwn checks the Jobs of a capture, among them one whose first user another capture has.
func TestEachJobHasAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	taken := agentjob.KeeperUser(captureUID, "uid-web-1", 0)
	w := newWorld(t, newCapture(), append(deployment("web-1", "web-2", "web-3"), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "another", Labels: userLabel(taken)},
	})...)
	w.settle()
	users := map[string]string{}
	for _, job := range w.jobs() {
		spec := job.Spec.Template.Spec
		if len(spec.Containers) == 0 {
			continue
		}
		sc := spec.Containers[1].SecurityContext
		label := job.Labels[sondev1.LabelKeeperUser]
		if *sc.RunAsUser != *sc.RunAsGroup || strconv.FormatInt(*sc.RunAsUser, 10) != label || job.Spec.Template.Labels[sondev1.LabelKeeperUser] != label {
			t.Errorf("job %s: user %d, group %d, labels %s and %s", job.Name, *sc.RunAsUser, *sc.RunAsGroup, label, job.Spec.Template.Labels[sondev1.LabelKeeperUser])
		}
		if other := users[label]; other != "" || label == strconv.FormatInt(taken, 10) {
			t.Errorf("job %s has user %s, as another (%q)", job.Name, label, other)
		}
		users[label] = job.Name
	}
	if len(users) != 3 {
		t.Errorf("users %v, want three", users)
	}
}
