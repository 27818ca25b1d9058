package fluentpvc

import (
	"cmp"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// maxBackoff bounds the delay between two attempts.
const maxBackoff = time.Hour

// policy has the times of a binding's template. The schema has checked their form.
type policy struct {
	attempts                   int32
	firstBackoff               time.Duration
	retention, failedRetention time.Duration
}

func (o *observation) policy() policy {
	t := &o.binding.Spec.Template
	return policy{
		attempts:        cmp.Or(t.Finalizer.MaxAttempts, sondev1.DefaultFinalizerAttempts),
		firstBackoff:    lasts(cmp.Or(t.Finalizer.Backoff, sondev1.DefaultFinalizerBackoff)),
		retention:       lasts(t.Retention),
		failedRetention: lasts(t.Finalizer.FailedRetention),
	}
}

// backoff returns the delay before the next attempt after this many failures.
func (p policy) backoff(failures int32) time.Duration {
	if failures == 0 {
		return 0
	}
	d := p.firstBackoff
	for range failures - 1 {
		if d *= 2; d >= maxBackoff {
			return maxBackoff
		}
	}
	return d
}

// lasts returns the duration of a field, and 0 for one that is not set.
func lasts(field string) time.Duration {
	d, err := duration.Parse(field)
	if err != nil {
		return 0
	}
	return d
}
