// Package example shows how a program installs a tenant's backend with the typed client, and waits until it is ready.
package example

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	apply "github.com/sonde-operator/sonde/client/applyconfiguration/api/v1alpha1"
	"github.com/sonde-operator/sonde/client/clientset/versioned"
	"github.com/sonde-operator/sonde/client/informers"
)

// manager owns the fields that this program applies.
const manager = "sonde-example"

// Install writes a Collector into a namespace, or changes the fields that an earlier call has set. The release goes to
// tenant's namespace, which must be open (docs/collector.md).
func Install(ctx context.Context, client versioned.Interface, namespace, name, tenant string) error {
	collector := apply.Collector(name, namespace).WithSpec(apply.CollectorSpec().
		WithCollector(apply.CollectorRelease().WithName(name)).
		WithTenant(apply.CollectorTenant().WithReference(tenant).WithInstance("prod")).
		WithDrift(sondev1.DriftRepair))
	options := metav1.ApplyOptions{FieldManager: manager, Force: true}
	if _, err := client.MonitoringV1alpha1().Collectors(namespace).Apply(ctx, collector, options); err != nil {
		return fmt.Errorf("apply collector %s: %w", name, err)
	}
	return nil
}

// WaitReady returns the Collector when its release is as the spec says and its objects are ready. It returns an error when
// the Collector is stalled, or when ctx ends.
func WaitReady(ctx context.Context, client versioned.Interface, namespace, name string) (*sondev1.Collector, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}))
	collectors := factory.Monitoring().V1alpha1().Collectors()
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default: // A change that nobody has read yet stands for this one too.
		}
	}
	if _, err := collectors.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, o any) { notify(o) },
	}); err != nil {
		return nil, fmt.Errorf("watch collectors: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer stop()
	factory.Start(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for collector %s: %w", name, ctx.Err())
		case <-changed:
		}
		collector, err := collectors.Lister().Collectors(namespace).Get(name)
		if err != nil {
			continue // The informer's index has not caught up with its event.
		}
		if done, err := ready(collector); done || err != nil {
			return collector, err
		}
	}
}

// ready reports whether the conditions describe the current spec and say that all is ready. A stalled Collector is an error.
func ready(c *sondev1.Collector) (bool, error) {
	if c.Status.ObservedGeneration != c.Generation {
		return false, nil
	}
	if stalled := apimeta.FindStatusCondition(c.Status.Conditions, sondev1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
		return false, fmt.Errorf("collector %s is stalled: %s: %s", c.Name, stalled.Reason, stalled.Message)
	}
	return apimeta.IsStatusConditionTrue(c.Status.Conditions, sondev1.ConditionReady), nil
}
