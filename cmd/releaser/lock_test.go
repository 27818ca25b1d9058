package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// short times of the lock. The library allows none below a second.
var short = leaderelection.LeaderElectionConfig{LeaseDuration: 2 * time.Second, RenewDeadline: time.Second, RetryPeriod: 200 * time.Millisecond}

func lockOf(set *fake.Clientset, identity string) *lock {
	return &lock{configMaps: set.CoreV1().ConfigMaps("acme"), anchor: release.Anchor{Name: "anchor", UID: "1"}, identity: identity}
}

// setWithAnchor refuses an update of an older version, as an API server does. The library's fake accepts any, and so would give two
// releasers the lock that read it at the same moment.
func setWithAnchor(uid string) *fake.Clientset {
	set := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "anchor", UID: types.UID(uid), ResourceVersion: "1"}})
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	var one sync.Mutex
	set.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		one.Lock()
		defer one.Unlock()
		wanted := action.(clienttesting.UpdateAction).GetObject().(*corev1.ConfigMap).DeepCopy()
		found, err := set.Tracker().Get(configMaps, wanted.Namespace, wanted.Name)
		if err != nil {
			return true, nil, err
		}
		version := found.(*corev1.ConfigMap).ResourceVersion
		if wanted.ResourceVersion != version {
			return true, nil, apierrors.NewConflict(configMaps.GroupResource(), wanted.Name, errors.New("the object has been modified"))
		}
		number, err := strconv.Atoi(version)
		if err != nil {
			return true, nil, err
		}
		wanted.ResourceVersion = strconv.Itoa(number + 1)
		return true, wanted, set.Tracker().Update(configMaps, wanted, wanted.Namespace)
	})
	return set
}

var done = release.Report{Outcome: release.Ready, Reason: release.ReasonReleased}

// Two releasers never work at once, and the second one begins soon after the first has ended.
func TestLock(t *testing.T) {
	set := setWithAnchor("1")
	var working, most atomic.Int32
	attempt := func(context.Context) release.Report {
		most.Store(max(most.Load(), working.Add(1)))
		time.Sleep(3 * short.LeaseDuration / 2) // it has to be renewed
		working.Add(-1)
		return done
	}
	reports := make(chan release.Report, 2)
	for _, name := range []string{"a", "b"} {
		go func() {
			r, err := whileLocked(t.Context(), lockOf(set, name), short, func() { t.Error("the lock is lost") }, attempt)
			if err != nil {
				t.Error(err)
			}
			reports <- r
		}()
	}
	for range 2 {
		if r := <-reports; r.Outcome != release.Ready {
			t.Errorf("%+v", r)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d worked at once", most.Load())
	}
}

// away is an API server that can go away. Then it refuses each request, or does not answer.
type away struct {
	typedcorev1.ConfigMapInterface

	gone, hangs atomic.Bool
}

func (a *away) answer(ctx context.Context) error {
	switch {
	case !a.gone.Load():
		return nil
	case a.hangs.Load():
		<-ctx.Done()
		return ctx.Err()
	default:
		return apierrors.NewInternalError(context.DeadlineExceeded)
	}
}

// Get implements ConfigMapInterface.
func (a *away) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ConfigMap, error) {
	if err := a.answer(ctx); err != nil {
		return nil, err
	}
	return a.ConfigMapInterface.Get(ctx, name, o)
}

// Update implements ConfigMapInterface.
func (a *away) Update(ctx context.Context, c *corev1.ConfigMap, o metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if err := a.answer(ctx); err != nil {
		return nil, err
	}
	return a.ConfigMapInterface.Update(ctx, c, o)
}

// A releaser that cannot renew the lock ends before another one may take it, and its attempt does not count.
func TestLostLock(t *testing.T) {
	// A slow machine has 3 s beyond the deadline.
	times := leaderelection.LeaderElectionConfig{LeaseDuration: 7 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond}
	for name, hangs := range map[string]bool{"refused": false, "no answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lockOf(setWithAnchor("1"), "a")
			api := &away{ConfigMapInterface: l.configMaps}
			api.hangs.Store(hangs)
			l.configMaps = api
			lost, working := make(chan time.Time, 1), make(chan struct{})
			began := time.Now()
			r, err := whileLocked(t.Context(), l, times, func() { lost <- time.Now() }, func(context.Context) release.Report {
				api.gone.Store(true)
				<-working
				return done
			})
			close(working)
			if err != nil || r.Outcome != release.Retry || r.Reason != release.ReasonLockLost || !r.Uncounted {
				t.Errorf("%+v, %v; want an attempt that does not count", r, err)
			}
			if after := (<-lost).Sub(began); after >= times.LeaseDuration {
				t.Errorf("lost after %s, and another releaser may work after %s", after, times.LeaseDuration)
			}
		})
	}
}

// A releaser releases the lock that it holds, also if its last renewal arrives late, and none of another one.
func TestReleaseOfTheLock(t *testing.T) {
	for name, tc := range map[string]struct {
		holder, want string
		conflicts    int32
	}{
		"its own":        {holder: "a"},
		"late renewal":   {holder: "a", conflicts: 1},
		"of another one": {holder: "b", want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			set := setWithAnchor("1")
			l := lockOf(set, "a")
			if _, _, err := l.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tc.holder}); err != nil {
				t.Fatal(err)
			}
			var conflicts atomic.Int32
			set.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				if conflicts.Add(1) > tc.conflicts {
					return false, nil, nil
				}
				return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "anchor", errors.New("the object has been modified"))
			})
			l.release()
			record, _, err := l.Get(t.Context())
			if err != nil || record.HolderIdentity != tc.want {
				t.Errorf("held by %q, %v; want %q", record.HolderIdentity, err, tc.want)
			}
		})
	}
}

// The report of an attempt that has ended is never lost, and its lock is released.
func TestReportOfALockedAttempt(t *testing.T) {
	for range 50 {
		l := lockOf(setWithAnchor("1"), "a")
		r, err := whileLocked(t.Context(), l, short, func() { t.Error("the lock is lost") }, func(context.Context) release.Report { return done })
		if err != nil || r.Outcome != release.Ready {
			t.Fatalf("%+v, %v", r, err)
		}
		if record, _, err := l.Get(t.Context()); err != nil || record.HolderIdentity != "" {
			t.Fatalf("the lock is held by %q, %v", record.HolderIdentity, err)
		}
	}
}

func TestLockOfAnotherAnchor(t *testing.T) {
	for name, set := range map[string]*fake.Clientset{"gone": fake.NewClientset(), "made anew": setWithAnchor("2")} {
		r, err := whileLocked(t.Context(), lockOf(set, "a"), short, nil, func(context.Context) release.Report { return done })
		if err != nil || r.Reason != release.ReasonEarlierRelease || !r.Uncounted {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// A releaser that waits for the lock in vain says so.
func TestLockIsHeld(t *testing.T) {
	set := setWithAnchor("1")
	stop := make(chan struct{})
	defer close(stop)
	began := make(chan struct{})
	go func() {
		_, _ = whileLocked(t.Context(), lockOf(set, "a"), short, func() {}, func(context.Context) release.Report {
			close(began)
			<-stop
			return done
		})
	}()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 3*short.LeaseDuration)
	defer cancel()
	r, err := whileLocked(ctx, lockOf(set, "b"), short, nil, func(context.Context) release.Report { return done })
	if err != nil || r.Reason != release.ReasonUnavailable || !r.Uncounted {
		t.Errorf("%+v, %v", r, err)
	}
}
