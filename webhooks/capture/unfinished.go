package capture

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// admittedFor is how long a capture that was admitted counts although the cache does not have it: the cache lags, or the creation
// failed later.
const admittedFor = 10 * time.Second

// Unfinished bounds the captures of a namespace that run or wait, and all that exist, of all kinds together. It counts those in the
// cache and those that it has admitted just before, so that concurrent requests do not pass it. Another replica has admitted others in the
// meantime, which count as soon as the cache has them.
type Unfinished struct {
	Cache client.Reader
	// Limit is the number of those that run or wait, and Existing of all; 0 is no limit.
	Limit, Existing int
	Clock           clock.PassiveClock

	mu sync.Mutex
	// admitted has the time of admission by namespace and stamp.
	admitted map[string]map[string]time.Time
}

// Check refuses another capture in a namespace that has as many as it may.
func (u *Unfinished) Check(ctx context.Context, namespace string) error {
	return u.admit(ctx, namespace, "")
}

// Admit is Check, and counts the capture with this stamp from now on.
func (u *Unfinished) Admit(ctx context.Context, namespace, stamp string) error {
	return u.admit(ctx, namespace, stamp)
}

func (u *Unfinished) admit(ctx context.Context, namespace, stamp string) error {
	if u.Limit == 0 && u.Existing == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forgetOld()
	n, existing := 0, 0
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := u.Cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("count %s of namespace %s: %w", k.Resource, namespace, err)
		}
		for _, c := range list.Captures() {
			delete(u.admitted[namespace], c.GetAnnotations()[sondev1.AnnotationStamp])
			existing++
			if !c.CaptureStatus().Phase.Final() && c.GetDeletionTimestamp().IsZero() {
				n++
			}
		}
	}
	if n += len(u.admitted[namespace]); u.Limit > 0 && n >= u.Limit {
		return admission.Forbidden("namespace %s has %d PacketCaptures and Traces that have not ended, and %d is the most here: stop or delete some, wait until some have ended, or ask for %s",
			namespace, n, u.Limit, ceiling.Raise(ceiling.FlagUnfinishedPerNamespace))
	}
	if existing += len(u.admitted[namespace]); u.Existing > 0 && existing >= u.Existing {
		return admission.Forbidden("namespace %s has %d PacketCaptures and Traces, and %d is the most here: delete some that have ended (kubectl sonde delete removes their files, too), or ask for %s",
			namespace, existing, u.Existing, ceiling.Raise(ceiling.FlagExistingPerNamespace))
	}
	if stamp == "" {
		return nil
	}
	if u.admitted == nil {
		u.admitted = map[string]map[string]time.Time{}
	}
	if u.admitted[namespace] == nil {
		u.admitted[namespace] = map[string]time.Time{}
	}
	u.admitted[namespace][stamp] = u.Clock.Now()
	return nil
}

func (u *Unfinished) forgetOld() {
	now := u.Clock.Now()
	for namespace, stamps := range u.admitted {
		maps.DeleteFunc(stamps, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedFor })
		if len(stamps) == 0 {
			delete(u.admitted, namespace)
		}
	}
}
