// Package brake knows the switch by which a cluster admin stops everything that the operator runs: a
// ConfigMap in the operator's namespace, so that it works without a restart.
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Name of the ConfigMap in the operator's namespace. Where there is none, nothing is paused.
	Name = "sonde-config"
	// Key that holds "true" while the operator is paused.
	Key = "paused"
)

// Paused reads the switch. A value that is no boolean counts as true: whoever reaches for the brake
// must not miss it by a slip. An empty or missing one is false.
func Paused(ctx context.Context, r client.Reader, namespace string) (bool, error) {
	var config corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Name}, &config)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get config map %s: %w", Name, err)
	}
	value := config.Data[Key]
	if value == "" {
		return false, nil
	}
	paused, err := strconv.ParseBool(value)
	return paused || err != nil, nil
}

// Message tells a user who asked for a kind what is paused, and who can end it.
func Message(namespace, kind string) string {
	return fmt.Sprintf("a cluster admin has paused all captures (key %s of ConfigMap %s/%s): ask them to set it to \"false\", and create a new %s then", Key, namespace, Name, kind)
}

// Switch is a cache that holds the switch and nothing else. It runs on every replica: a standby whose controllers
// wait for it would wait for the leader's, and end.
type Switch struct{ cache.Cache }

// NewSwitch returns the Switch of the operator in a namespace.
func NewSwitch(config *rest.Config, namespace string, scheme *runtime.Scheme) (Switch, error) {
	c, err := cache.New(config, cacheOptions(namespace, scheme))
	if err != nil {
		return Switch{}, fmt.Errorf("make cache of the brake: %w", err)
	}
	return Switch{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Switch) NeedLeaderElection() bool { return false }

func cacheOptions(namespace string, scheme *runtime.Scheme) cache.Options {
	return cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", Name)},
		}},
	}}
}
