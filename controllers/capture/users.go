package capture

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

const (
	// userTries is how many users are tried for a Job. Each is free with a probability of over 99.9% beside 100,000 Jobs.
	userTries = 20
	// usersRemembered is how many assignments may be ahead of the cache.
	usersRemembered = 1024
)

var errNoUser = errors.New("found no free user for the keeper: delete old captures")

// KeeperUsers gives the keeper of each agent Job a user that no other live Job or agent's Pod has. The controllers of all kinds
// share one. The cache shows the users in use; KeeperUsers remembers those that it may not show yet.
type KeeperUsers struct {
	mu sync.Mutex
	// owners of the last assignments, and their users in order.
	owners map[int64]string
	last   []int64
}

// Assign returns the user for the Job of a capture's Pod. Another call for the same Pod may return the same user.
func (u *KeeperUsers) Assign(ctx context.Context, cache client.Reader, namespace string, capture, pod types.UID) (int64, error) {
	for attempt := range userTries {
		user := agentjob.KeeperUser(capture, pod, attempt)
		// The cache is read first. A user that another call takes meanwhile is remembered.
		inUse, err := userInUse(ctx, cache, namespace, user)
		if err != nil {
			return 0, err
		}
		if !inUse && u.take(user, string(capture)+"/"+string(pod)) {
			return user, nil
		}
	}
	return 0, errNoUser
}

// take remembers the owner of a user, and reports whether no other has it.
func (u *KeeperUsers) take(user int64, owner string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if before, taken := u.owners[user]; taken {
		return before == owner
	}
	if len(u.last) == usersRemembered {
		delete(u.owners, u.last[0])
		u.last = u.last[1:]
	}
	if u.owners == nil {
		u.owners = map[int64]string{}
	}
	u.owners[user] = owner
	u.last = append(u.last, user)
	return true
}

// userInUse reports whether a Job, or a Pod that outlives its Job, has the user.
func userInUse(ctx context.Context, cache client.Reader, namespace string, user int64) (bool, error) {
	var jobs batchv1.JobList
	var agents corev1.PodList
	for _, list := range []client.ObjectList{&jobs, &agents} {
		err := cache.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{target.IndexKeeperUser: strconv.FormatInt(user, 10)})
		if err != nil {
			return false, fmt.Errorf("list the users of keepers: %w", err)
		}
	}
	return len(jobs.Items)+len(agents.Items) > 0, nil
}
