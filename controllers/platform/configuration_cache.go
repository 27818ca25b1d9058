package platform

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfigurationCache holds the webhook configuration for Pods and nothing else. The manager's cache cannot hold it, because it
// lists this kind by the name of the configuration for Sonde's own kinds. It runs on every replica, so that a standby can take over
// at once.
type ConfigurationCache struct{ standbyCache }

// NewConfigurationCache returns the cache of the configuration for Pods. The caller adds it to the manager.
func NewConfigurationCache(config *rest.Config, scheme *runtime.Scheme) (ConfigurationCache, error) {
	c, err := cache.New(config, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, PodConfigurationName)},
	}})
	if err != nil {
		return ConfigurationCache{}, fmt.Errorf("create the cache of the webhook configuration %s: %w", PodConfigurationName, err)
	}
	return ConfigurationCache{standbyCache{c}}, nil
}

// standbyCache runs on every replica, also on those that do not lead.
type standbyCache struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (standbyCache) NeedLeaderElection() bool { return false }
