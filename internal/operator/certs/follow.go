package certs

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch is a cache that holds the Secret and nothing else. It runs on every replica.
type Watch struct{ cache.Cache }

// NewWatch returns the Watch of the operator in a namespace.
func NewWatch(config *rest.Config, namespace string, scheme *runtime.Scheme) (Watch, error) {
	c, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", SecretName)},
		}},
	}})
	if err != nil {
		return Watch{}, fmt.Errorf("make cache of Secret %s: %w", SecretName, err)
	}
	return Watch{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Watch) NeedLeaderElection() bool { return false }

// Follow makes the manager check the Secret when it changes, and send no requests while it does not. Call it before Start.
func (m *Manager) Follow(ctx context.Context, w cache.Cache) error {
	informer, err := w.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Secret %s: %w", SecretName, err)
	}
	check := func(any) {
		select {
		case m.wake <- struct{}{}:
		default: // a check is due already, and it will see this change
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: check, UpdateFunc: func(_, now any) { check(now) }, DeleteFunc: check,
	})
	if err != nil {
		return fmt.Errorf("watch Secret %s: %w", SecretName, err)
	}
	m.secrets = w
	return nil
}
