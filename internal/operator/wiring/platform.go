package wiring

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/internal/version"
)

// optionalObjects returns the objects that the operator creates for itself if the cluster has their API.
func (o Options) optionalObjects() []*unstructured.Unstructured {
	objects := append(platform.Console(version.Version), platform.SecurityContextConstraints(o.Agent), platform.PriorityClass())
	objects = append(objects, platform.ClaimPolicy(o.Agent.Namespace)...)
	objects = append(objects, platform.CollectorPolicy()...)
	if o.MetricsAddress != "0" {
		objects = append(objects, platform.Monitoring(o.Agent.Namespace)...)
	}
	return objects
}

// addPlatform adds the controllers that keep the objects of optional APIs in place.
func (m *manager) addPlatform(_ context.Context, mgr ctrl.Manager) error {
	var errs []error
	for _, o := range m.optional {
		r := &platformcontroller.ObjectReconciler{Client: mgr.GetClient(), Live: m.live, Desired: o, Watchdog: m.watchdog}
		errs = append(errs, r.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// addConfigurations adds the controllers that keep the webhook configurations in place.
func (m *manager) addConfigurations(_ context.Context, mgr ctrl.Manager) error {
	var err error
	if m.podConfiguration, err = platformcontroller.NewConfigurationCache(mgr.GetConfig(), mgr.GetScheme()); err != nil {
		return err
	}
	secret := webhookpath.New(m.key, clock.RealClock{})
	errs := []error{mgr.Add(m.podConfiguration)}
	for _, r := range []*platformcontroller.ConfigurationReconciler{
		platformcontroller.NewConfigurationReconciler(mgr.GetClient(), m.live, m.Agent.Namespace, secret, m.serving.CABundle),
		platformcontroller.NewPodConfigurationReconciler(mgr.GetClient(), m.live, m.podConfiguration, m.Agent.Namespace, secret, m.serving.CABundle),
	} {
		r.Watchdog = m.watchdog
		m.serving.OnChange(r.Trigger)
		errs = append(errs, r.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}
