package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// Times of the lock. Who cannot renew it ends half of lockTime before another one may take it.
const (
	lockTime   = 30 * time.Second
	renewTime  = 15 * time.Second
	renewEvery = 5 * time.Second
)

// lock is an annotation of the anchor that names the only releaser which may write. It implements resourcelock.Interface. The manager starts
// no releaser before the last one has ended, but it cannot know that of a Pod on a node that it has lost.
type lock struct {
	configMaps typedcorev1.ConfigMapInterface
	anchor     release.Anchor
	identity   string
	// held is the anchor as it was last read or written.
	held *corev1.ConfigMap
}

// errAnchor says that the anchor is not the one of the request any more, so the release is being removed.
var errAnchor = errors.New("the ConfigMap that owns the release is gone")

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	found, err := l.configMaps.Get(ctx, l.anchor.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(found.UID) != l.anchor.UID {
		return nil, nil, errAnchor // no lock is created
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get the lock: %w", err)
	}
	l.held = found
	record, text := &resourcelock.LeaderElectionRecord{}, []byte(found.Annotations[resourcelock.LeaderElectionRecordAnnotationKey])
	if len(text) > 0 {
		if err := json.Unmarshal(text, record); err != nil {
			return nil, nil, fmt.Errorf("read the lock: %w", err)
		}
	}
	return record, text, nil
}

// Create implements resourcelock.Interface.
func (l *lock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return errAnchor }

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	if l.held == nil {
		return errors.New("write the lock: it was not read")
	}
	changed := l.held.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, resourcelock.LeaderElectionRecordAnnotationKey, string(text))
	if changed, err = l.configMaps.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	l.held = changed
	return nil
}

// release lets the next releaser work at once. If it fails, that one waits for lockTime.
func (l *lock) release() {
	ctx, cancel := context.WithTimeout(context.Background(), renewEvery)
	defer cancel()
	for {
		record, _, err := l.Get(ctx)
		if err != nil || record.HolderIdentity != l.identity {
			return
		}
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		if err = l.Update(ctx, *record); !apierrors.IsConflict(err) { // with a renewal that was under way when the attempt ended
			return
		}
	}
}

// RecordEvent implements resourcelock.Interface.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return "ConfigMap " + l.anchor.Name }

// whileLocked makes an attempt while it holds the lock, which it waits for until ctx ends. If it cannot renew the lock in time, it calls
// lost, and returns a report of that, which is no failure of the release. The process must then end before lockTime is over: Helm goes on in
// the background when its context has ended.
func whileLocked(ctx context.Context, l *lock, times leaderelection.LeaderElectionConfig, lost func(), attempt func(context.Context) release.Report) (release.Report, error) {
	if _, _, err := l.Get(ctx); errors.Is(err, errAnchor) {
		return failed(&problem{reason: release.ReasonEarlierRelease, text: err.Error(), retry: true, uncounted: true}), nil
	}
	// The lock is kept until the attempt has returned, also if that was told to end.
	holding, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	began, ended := make(chan struct{}), make(chan struct{})
	var report release.Report
	// ReleaseOnCancel would also try to release a lock that it could not renew, for RenewDeadline, before Run returns.
	times.Lock, times.Name = l, l.Describe()
	times.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(context.Context) {
			close(began)
			report = attempt(ctx)
			close(ended)
			letGo()
		},
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(times)
	if err != nil {
		return release.Report{}, fmt.Errorf("make the lock: %w", err)
	}
	stopWaiting := context.AfterFunc(ctx, func() {
		if !isClosed(began) {
			letGo()
		}
	})
	defer stopWaiting()
	elector.Run(holding)
	switch {
	case isClosed(ended):
		l.release()
		return report, nil
	case isClosed(began):
		lost()
		return failed(&problem{
			reason: release.ReasonLockLost, text: fmt.Sprintf("the releaser could not renew its lock for %s, and ended", times.RenewDeadline), retry: true, uncounted: true,
		}), nil
	default:
		return failed(&problem{reason: release.ReasonUnavailable, text: "another releaser still works on this release", retry: true, uncounted: true}), nil
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
