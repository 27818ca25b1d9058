package platform

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

const configurationOwner = client.FieldOwner("sonde-webhooks")

// bundleInterval is the time between two passes while there is no certificate yet.
const bundleInterval = 2 * time.Second

// ConfigurationReconciler applies a MutatingWebhookConfiguration at start, with each new CA bundle or secret path, and when
// someone changes or deletes it. NewConfigurationReconciler makes one for Sonde's own kinds, NewPodConfigurationReconciler one
// for Pods.
type ConfigurationReconciler struct {
	client.Client
	// Live reads the owner without a cache, so that no ClusterRole is cached.
	Live client.Reader
	// Namespace of the operator.
	Namespace string
	// Secret of the webhook server's paths.
	Secret webhookpath.Secret
	// CABundle returns the current bundle as PEM, or nil while there is none.
	CABundle func() []byte
	// Watchdog records each pass.
	Watchdog *health.Watchdog

	name string
	// observed reads the live configuration.
	observed client.Reader
	// build returns the desired configuration, or nil if there must be none.
	build func(context.Context, ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error)
	// watch adds the objects that a pass reads.
	watch    func(*builder.Builder) *builder.Builder
	triggers chan event.GenericEvent
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde,verbs=create;list;watch;patch;delete

// The reconciler for Sonde's own kinds never deletes. It has the right to, because OpenShift's
// OwnerReferencesPermissionEnforcement requires it for setting an owner on an existing object. The right to create can be
// restricted to a name, because server-side apply is a PATCH of that name; a POST would be refused.

// NewConfigurationReconciler returns a reconciler of the configuration for Sonde's own kinds. Call Trigger when the
// bundle has changed.
func NewConfigurationReconciler(c client.Client, live client.Reader, namespace string, secret webhookpath.Secret, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, Live: live, Namespace: namespace, Secret: secret, CABundle: bundle,
		name: ConfigurationName, observed: c, triggers: make(chan event.GenericEvent, 1),
		build: func(_ context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			return BuildConfiguration(o), nil
		},
		watch: func(b *builder.Builder) *builder.Builder {
			return b.For(&admissionregistrationv1.MutatingWebhookConfiguration{})
		},
	}
}

// CacheByObject restricts the manager's cache to the configuration for Sonde's own kinds, so that the right to list by
// name suffices.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {
			Field: fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigurationName),
		},
	}
}

// Trigger requests a pass. It never blocks; several calls may lead to one pass.
func (r *ConfigurationReconciler) Trigger() {
	e := event.GenericEvent{Object: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.name}}}
	select {
	case r.triggers <- e:
	default: // The pass that is already pending reads the newest bundle.
	}
}

// SetupWithManager adds the controller and triggers its first pass.
func (r *ConfigurationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.Trigger()
	return r.watch(ctrl.NewControllerManagedBy(mgr)).
		WatchesRawSource(source.Channel(r.triggers, &handler.EnqueueRequestForObject{})).
		Complete(r.Watchdog.Watch("webhook configuration", r))
}

// Reconcile applies the configuration if the live one differs, and deletes one that must not exist. The next pass is at the
// latest when the secret path changes.
func (r *ConfigurationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name != r.name {
		return ctrl.Result{}, nil
	}
	bundle := r.CABundle()
	if bundle == nil {
		return ctrl.Result{RequeueAfter: bundleInterval}, nil
	}
	owner, err := platform.Owner(ctx, r.Live, "MutatingWebhookConfiguration/"+r.name)
	if err != nil {
		return ctrl.Result{}, err
	}
	segment, left := r.Secret.Current()
	desired, err := r.build(ctx, ConfigurationOptions{Namespace: r.Namespace, SecretPath: segment, CABundle: bundle, OwnerUID: owner})
	if err != nil {
		return ctrl.Result{}, err
	}
	var live admissionregistrationv1.MutatingWebhookConfiguration
	err = r.observed.Get(ctx, req.NamespacedName, &live)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get webhook configuration: %w", err)
	}
	exists := err == nil
	if desired == nil {
		return ctrl.Result{}, r.remove(ctx, &live, exists)
	}
	if exists {
		same, err := matches(desired, &live)
		if err != nil {
			return ctrl.Result{}, err
		}
		if same {
			return ctrl.Result{RequeueAfter: left}, nil
		}
	}
	ctrl.LoggerFrom(ctx).Info("Applying webhook configuration")
	if err := r.Apply(ctx, desired, configurationOwner, client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply webhook configuration: %w", err)
	}
	return ctrl.Result{RequeueAfter: left}, nil
}

func (r *ConfigurationReconciler) remove(ctx context.Context, live *admissionregistrationv1.MutatingWebhookConfiguration, exists bool) error {
	if !exists {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting webhook configuration")
	if err := r.Delete(ctx, live, client.Preconditions{UID: new(live.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete webhook configuration: %w", err)
	}
	return nil
}

// matches reports whether live has everything in desired. It compares the webhooks as a whole: BuildConfiguration
// leaves no field of them to be defaulted.
func matches(desired *acadmission.MutatingWebhookConfigurationApplyConfiguration, live *admissionregistrationv1.MutatingWebhookConfiguration) (bool, error) {
	b, err := json.Marshal(desired)
	if err != nil {
		return false, fmt.Errorf("marshal webhook configuration: %w", err)
	}
	var want admissionregistrationv1.MutatingWebhookConfiguration
	if err := json.Unmarshal(b, &want); err != nil {
		return false, fmt.Errorf("read webhook configuration: %w", err)
	}
	for k, v := range want.Labels {
		if live.Labels[k] != v {
			return false, nil
		}
	}
	for _, o := range want.OwnerReferences {
		if !slices.ContainsFunc(live.OwnerReferences, func(l metav1.OwnerReference) bool { return l.UID == o.UID }) {
			return false, nil
		}
	}
	return equality.Semantic.DeepEqual(want.Webhooks, live.Webhooks), nil
}
