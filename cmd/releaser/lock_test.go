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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"

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

// A releaser that cannot renew the lock ends before another one may take it.
func TestLostLock(t *testing.T) {
	set := setWithAnchor("1")
	var away atomic.Bool
	set.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	lost := make(chan time.Time, 1)
	began := time.Now()
	_, err := whileLocked(t.Context(), lockOf(set, "a"), short, func() { lost <- time.Now() }, func(context.Context) release.Report {
		away.Store(true)
		time.Sleep(5 * short.LeaseDuration)
		return done
	})
	if err == nil {
		t.Error("no error although the lock was lost")
	}
	if after := (<-lost).Sub(began); after >= short.LeaseDuration {
		t.Errorf("lost after %s, and another releaser may work after %s", after, short.LeaseDuration)
	}
}

// The report of an attempt that has ended is never lost.
func TestReportOfALockedAttempt(t *testing.T) {
	for range 50 {
		r, err := whileLocked(t.Context(), lockOf(setWithAnchor("1"), "a"), short, func() { t.Error("the lock is lost") }, func(context.Context) release.Report { return done })
		if err != nil || r.Outcome != release.Ready {
			t.Fatalf("%+v, %v", r, err)
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
