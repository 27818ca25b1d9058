package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// admittedFor is how long a Pod counts that was admitted although the cache has no binding of it: the binding comes a little
// later, or the creation of the Pod failed.
const admittedFor = 30 * time.Second

// defaultMaxBindings is the schema's, for a FluentPVC from before the field.
const defaultMaxBindings = 500

// Bindings bounds the volumes of a FluentPVC in a namespace. It counts the bindings in the cache and the Pods that it has admitted
// just before, so that a rollout does not pass the bound before its bindings exist. Pods that another replica has admitted count
// when the cache has their bindings.
type Bindings struct {
	cache client.Reader
	clock clock.PassiveClock

	// mu also bounds the memory of a count: a list of some thousands takes a few MiB.
	mu sync.Mutex
	// admitted has the time of admission by namespace and FluentPVC, and by claim.
	admitted map[bindingsOf]map[string]time.Time
}

type bindingsOf struct{ namespace, fluentPVC string }

// NewBindings returns a Bindings that reads FluentPVCBindings from a cache.
func NewBindings(cached client.Reader, clk clock.PassiveClock) *Bindings {
	return &Bindings{cache: cached, clock: clk, admitted: map[bindingsOf]map[string]time.Time{}}
}

// Admit refuses a Pod if the FluentPVC has as many volumes in its namespace as it may, and counts the Pod from now on unless it
// is a dry run. A Pod that is admitted again with the same claim counts once.
func (b *Bindings) Admit(ctx context.Context, namespace string, f *sondev1.FluentPVC, claimName string, dryRun bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetOld()
	var list sondev1.FluentPVCBindingList
	if err := b.cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("count the bindings of namespace %s: %w", namespace, err)
	}
	of := bindingsOf{namespace, f.Name}
	recent, n := b.admitted[of], 0
	for i := range list.Items {
		if list.Items[i].Spec.FluentPVC.Name == f.Name {
			delete(recent, list.Items[i].Name)
			n++
		}
	}
	if _, again := recent[claimName]; !again {
		n++
	}
	if n += len(recent); n > int(cmp.Or(f.Spec.MaxBindings, defaultMaxBindings)) {
		return admission.Forbidden("FluentPVC %[1]s has %[2]d volumes in namespace %[3]s, and spec.maxBindings allows %[2]d: wait until the volumes of ended Pods are processed (kubectl get fluentpvcbindings -n %[3]s), or ask for a higher spec.maxBindings",
			f.Name, cmp.Or(f.Spec.MaxBindings, defaultMaxBindings), namespace)
	}
	if dryRun {
		return nil
	}
	if recent == nil {
		recent = map[string]time.Time{}
		b.admitted[of] = recent
	}
	recent[claimName] = b.clock.Now()
	return nil
}

func (b *Bindings) forgetOld() {
	now := b.clock.Now()
	for of, claims := range b.admitted {
		maps.DeleteFunc(claims, func(_ string, at time.Time) bool { return now.Sub(at) >= admittedFor })
		if len(claims) == 0 {
			delete(b.admitted, of)
		}
	}
}
