package fluentpvc

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestEvictionsOfCachedPodsBackOff checks that the cache keeps the owner by which evictions back off.
func TestEvictionsOfCachedPodsBackOff(t *testing.T) {
	for _, kind := range []string{"Job", "ReplicaSet"} {
		pod := targetPod("1")
		pod.CreationTimestamp = metav1.NewTime(noon)
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", UID: "owner", Controller: new(true)}}
		kept, err := target.Slim("sonde-system")(pod)
		if err != nil {
			t.Fatal(err)
		}
		read := kept.(*slim.Pod).Expand()
		var e evictionBackoff
		e.record(read, noon)
		var soon *tooSoonError
		if err := e.check(read, noon.Add(time.Second)); !errors.As(err, &soon) {
			t.Errorf("the next Pod of a %s: %v, want that it is too soon", kind, err)
		}
	}
}

// TestEvictionsBackOff checks that the Pods of an owner are evicted at once when they fail together, and more and more slowly when
// each new one fails.
func TestEvictionsBackOff(t *testing.T) {
	made := func(owner types.UID, at time.Time) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: new(true)}}
		}
		return p
	}
	var e evictionBackoff
	start := noon.Add(-time.Minute)
	now := noon
	for n := range 3 {
		p := made("rs", start)
		if err := e.check(p, now); err != nil {
			t.Errorf("Pod %d of those that fail together: %v", n, err)
		}
		e.record(p, now)
		now = now.Add(100 * time.Millisecond)
	}
	last := now.Add(-100 * time.Millisecond)
	for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
		delay := time.Duration(seconds) * time.Second
		p := made("rs", last.Add(time.Second).Truncate(time.Second))
		var soon *tooSoonError
		if err := e.check(p, last.Add(delay-time.Millisecond)); !errors.As(err, &soon) || !soon.due.Equal(last.Add(delay)) {
			t.Fatalf("before %s: %v, want that it is due then", delay, err)
		}
		last = last.Add(delay)
		if err := e.check(p, last); err != nil {
			t.Fatalf("after %s: %v", delay, err)
		}
		e.record(p, last)
	}
	if err := e.check(made("another", last), last); err != nil {
		t.Errorf("a Pod of another owner: %v", err)
	}
	for range 2 {
		if err := e.check(made("", last), last); err != nil {
			t.Errorf("a Pod without owner: %v", err)
		}
		e.record(made("", last), last)
	}
	e.record(made("another", last), last.Add(2*maxEvictionDelay+time.Second))
	if len(e.last) != 1 {
		t.Errorf("%d owners are remembered, want that the old one is forgotten", len(e.last))
	}
}
