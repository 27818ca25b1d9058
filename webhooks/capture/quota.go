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

// Quota bounds the captures of a namespace that run or wait, and all that exist, of all kinds together. It counts those in the
// cache and those that it has admitted just before, so that concurrent requests do not pass it. Those that another replica has
// admitted count as soon as the cache has them.
type Quota struct {
	Cache client.Reader
	// Unfinished bounds those that run or wait, and Existing all; 0 is no bound.
	Unfinished, Existing int
	Clock                clock.PassiveClock

	mu sync.Mutex
	// admitted has the time of admission by namespace and stamp.
	admitted map[string]map[string]time.Time
}

// Check refuses another capture in a namespace that has as many as it may.
func (q *Quota) Check(ctx context.Context, namespace string) error {
	return q.admit(ctx, namespace, "")
}

// Admit is Check, and counts the capture with this stamp from now on.
func (q *Quota) Admit(ctx context.Context, namespace, stamp string) error {
	return q.admit(ctx, namespace, stamp)
}

func (q *Quota) admit(ctx context.Context, namespace, stamp string) error {
	if q.Unfinished == 0 && q.Existing == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetOld()
	n, existing := 0, 0
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := q.Cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("count %s of namespace %s: %w", k.Resource, namespace, err)
		}
		for _, c := range list.Captures() {
			delete(q.admitted[namespace], c.GetAnnotations()[sondev1.AnnotationStamp])
			existing++
			if !c.CaptureStatus().Phase.Final() && c.GetDeletionTimestamp().IsZero() {
				n++
			}
		}
	}
	if n += len(q.admitted[namespace]); q.Unfinished > 0 && n >= q.Unfinished {
		return admission.Forbidden("namespace %s has %d PacketCaptures and Traces that have not ended or were asked for just now, and %d is the most here: stop or delete some, wait until some have ended, or ask for %s",
			namespace, n, q.Unfinished, ceiling.Raise(ceiling.FlagUnfinishedPerNamespace))
	}
	if existing += len(q.admitted[namespace]); q.Existing > 0 && existing >= q.Existing {
		return admission.Forbidden("namespace %s has %d PacketCaptures and Traces, and %d is the most here: delete some that have ended (kubectl sonde delete removes their files, too), or ask for %s",
			namespace, existing, q.Existing, ceiling.Raise(ceiling.FlagExistingPerNamespace))
	}
	if stamp == "" {
		return nil
	}
	if q.admitted == nil {
		q.admitted = map[string]map[string]time.Time{}
	}
	if q.admitted[namespace] == nil {
		q.admitted[namespace] = map[string]time.Time{}
	}
	q.admitted[namespace][stamp] = q.Clock.Now()
	return nil
}

func (q *Quota) forgetOld() {
	now := q.Clock.Now()
	for namespace, stamps := range q.admitted {
		maps.DeleteFunc(stamps, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedFor })
		if len(stamps) == 0 {
			delete(q.admitted, namespace)
		}
	}
}
