package fluentpvc

import (
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Delays between the evictions of Pods that an owner makes one after the other. They double.
const (
	minEvictionDelay = 10 * time.Second
	maxEvictionDelay = 5 * time.Minute
)

// evictionBackoff slows down an owner whose every new Pod is evicted, because its sidecar always fails: each such Pod costs a claim and a
// Job. Pods that existed before the owner's last eviction are evicted at once. Only the leader evicts, so this is in memory; a new
// leader begins anew. The zero value is ready.
type evictionBackoff struct {
	mu   sync.Mutex
	last map[controllerKey]eviction
}

type eviction struct {
	at    time.Time
	delay time.Duration // until the owner's next Pod may be evicted
}

// tooSoonError says when the eviction of a Pod is due.
type tooSoonError struct{ due time.Time }

func (e *tooSoonError) Error() string {
	return fmt.Sprintf("earlier Pods of its controller were evicted for the same reason, so it is evicted not before %s: repair the sidecar", e.due.UTC().Format(time.RFC3339))
}

// check returns a tooSoonError if the Pod must not be evicted yet.
func (e *evictionBackoff) check(pod *corev1.Pod, now time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.last[controllerOf(pod)]
	if due := last.at.Add(last.delay); known && replaces(pod, last) && now.Before(due) {
		return &tooSoonError{due}
	}
	return nil
}

// record notes an eviction.
func (e *evictionBackoff) record(pod *corev1.Pod, now time.Time) {
	owner := controllerOf(pod)
	if owner.uid == "" {
		return // nothing makes the Pod again
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		e.last = map[controllerKey]eviction{}
	}
	maps.DeleteFunc(e.last, func(_ controllerKey, l eviction) bool { return now.Sub(l.at) > 2*maxEvictionDelay })
	last, known := e.last[owner]
	switch {
	case !known:
		last.delay = minEvictionDelay
	case replaces(pod, last):
		last.delay = min(2*last.delay, maxEvictionDelay)
	}
	last.at = now
	e.last[owner] = last
}

// replaces reports whether a Pod was made after its owner's last eviction. Times of creation are whole seconds.
func replaces(pod *corev1.Pod, last eviction) bool {
	return !pod.CreationTimestamp.Time.Before(last.at.Truncate(time.Second))
}

// controllerKey has the namespace too: a user may write any UID into a Pod of theirs.
type controllerKey struct {
	namespace string
	uid       types.UID
}

func controllerOf(pod *corev1.Pod) controllerKey {
	key := controllerKey{namespace: pod.Namespace}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		key.uid = owner.UID
	}
	return key
}
