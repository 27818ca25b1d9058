// Package pause reads the ConfigMap with which a cluster admin stops all captures at once. It takes effect without a
// restart.
package pause

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

const (
	// ConfigMapName in the operator's namespace. Without this ConfigMap nothing is paused.
	ConfigMapName = "sonde-config"
	// Key whose value is "true" while the operator is paused.
	Key = "paused"
)

// Requested reports whether the operator is paused. An empty or missing value is false. A value that is not a boolean
// counts as true, so that a typing error does not keep an admin from stopping everything.
func Requested(ctx context.Context, r client.Reader, namespace string) (bool, error) {
	var config corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ConfigMapName}, &config)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get config map %s: %w", ConfigMapName, err)
	}
	value := config.Data[Key]
	if value == "" {
		return false, nil
	}
	paused, err := strconv.ParseBool(value)
	return paused || err != nil, nil
}

// Message explains the pause to a user who creates an object of kind, and says who can end it.
func Message(namespace, kind string) string {
	return fmt.Sprintf("a cluster admin has paused all captures (key %s of ConfigMap %s/%s): ask them to set it to \"false\", and create a new %s then", Key, namespace, ConfigMapName, kind)
}

// Wake returns a function that enqueues every object of a kind that has not ended, for watches of the ConfigMap.
func Wake(c client.Client, k kind.Kind) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var requests []reconcile.Request
		err := k.Each(ctx, c, func(owner sondev1.AgentJobOwner) {
			if !owner.Ended() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
			}
		})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing objects to pause failed", "kind", k.Name)
		}
		return requests
	}
}

// Cache holds the ConfigMap and nothing else. It runs on every replica: a standby replica waits for the caches of its
// controllers and would end if this one ran on the leader alone.
type Cache struct{ cache.Cache }

// NewCache returns the Cache of the operator in namespace.
func NewCache(config *rest.Config, namespace string, scheme *runtime.Scheme) (Cache, error) {
	c, err := cache.New(config, cacheOptions(namespace, scheme))
	if err != nil {
		return Cache{}, fmt.Errorf("create the cache of the pause: %w", err)
	}
	return Cache{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Cache) NeedLeaderElection() bool { return false }

func cacheOptions(namespace string, scheme *runtime.Scheme) cache.Options {
	return cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", ConfigMapName)},
		}},
	}}
}
