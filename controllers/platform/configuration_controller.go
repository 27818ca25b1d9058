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
)

const fieldOwner = client.FieldOwner("sonde-webhooks")

// noBundleYet is how soon to look again for a certificate that is still being made.
const noBundleYet = 2 * time.Second

// ConfigurationReconciler keeps a MutatingWebhookConfiguration as it should be: applied at start and with
// each new CA bundle, and again when somebody changes or deletes it. NewConfigurationReconciler keeps that of
// Sonde's own kinds, NewGateConfigurationReconciler that of Pods.
type ConfigurationReconciler struct {
	client.Client
	// APIReader reads the owner live, so that no ClusterRole is cached.
	APIReader client.Reader
	// Namespace of the operator.
	Namespace string
	// SecretPath that the server answers at.
	SecretPath string
	// CABundle of this moment, as PEM; nil as long as there is none.
	CABundle func() []byte
	// Watchdog records each pass.
	Watchdog *health.Watchdog

	// name of the configuration, and where the one that is there is read.
	name string
	seen client.Reader
	// build returns the configuration as it should be; nil where none may be.
	build func(context.Context, ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error)
	// watch adds what a pass reads.
	watch func(*builder.Builder) *builder.Builder
	wake  chan event.GenericEvent
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sonde,verbs=create;list;watch;patch;delete

// The right to delete is not used for this one: OpenShift's OwnerReferencesPermissionEnforcement asks for it
// before it lets anybody set an owner on an object that exists. The right to create can be bound to the
// name because server-side apply is a PATCH of it: a POST would be refused.

// NewConfigurationReconciler returns a reconciler that has not been told to look yet; give Wake to
// whatever changes the bundle.
func NewConfigurationReconciler(c client.Client, live client.Reader, namespace, secretPath string, bundle func() []byte) *ConfigurationReconciler {
	return &ConfigurationReconciler{
		Client: c, APIReader: live, Namespace: namespace, SecretPath: secretPath, CABundle: bundle,
		name: ConfigurationName, seen: c, wake: make(chan event.GenericEvent, 1),
		build: func(_ context.Context, o ConfigurationOptions) (*acadmission.MutatingWebhookConfigurationApplyConfiguration, error) {
			return BuildConfiguration(o), nil
		},
		watch: func(b *builder.Builder) *builder.Builder {
			return b.For(&admissionregistrationv1.MutatingWebhookConfiguration{})
		},
	}
}

// CacheByObject restricts the manager's cache to the one configuration, so that no other is held in
// memory and the right to list by name suffices.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {
			Field: fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigurationName),
		},
	}
}

// Wake asks for a look soon and never blocks; several calls in a row may end in one look.
func (r *ConfigurationReconciler) Wake() {
	e := event.GenericEvent{Object: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.name}}}
	select {
	case r.wake <- e:
	default: // one is waiting already, and it will see the newest bundle
	}
}

// SetupWithManager watches what a pass reads; the first look needs no event of it.
func (r *ConfigurationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.Wake()
	return r.watch(ctrl.NewControllerManagedBy(mgr)).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		Complete(r.Watchdog.Watch("webhook configuration", r))
}

// Reconcile applies the configuration unless it is already there, and deletes one that may not be.
func (r *ConfigurationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Name != r.name {
		return ctrl.Result{}, nil
	}
	bundle := r.CABundle()
	if bundle == nil {
		return ctrl.Result{RequeueAfter: noBundleYet}, nil
	}
	owner, err := platform.Owner(ctx, r.APIReader, "MutatingWebhookConfiguration/"+r.name)
	if err != nil {
		return ctrl.Result{}, err
	}
	desired, err := r.build(ctx, ConfigurationOptions{Namespace: r.Namespace, SecretPath: r.SecretPath, CABundle: bundle, OwnerUID: owner})
	if err != nil {
		return ctrl.Result{}, err
	}
	var live admissionregistrationv1.MutatingWebhookConfiguration
	err = r.seen.Get(ctx, req.NamespacedName, &live)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get webhook configuration: %w", err)
	}
	there := err == nil
	if desired == nil {
		return ctrl.Result{}, r.remove(ctx, &live, there)
	}
	if there {
		same, err := matches(desired, &live)
		if same || err != nil {
			return ctrl.Result{}, err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Applying webhook configuration")
	if err := r.Apply(ctx, desired, fieldOwner, client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply webhook configuration: %w", err)
	}
	return ctrl.Result{}, nil
}

func (r *ConfigurationReconciler) remove(ctx context.Context, live *admissionregistrationv1.MutatingWebhookConfiguration, there bool) error {
	if !there {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting webhook configuration")
	if err := r.Delete(ctx, live, client.Preconditions{UID: new(live.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete webhook configuration: %w", err)
	}
	return nil
}

// matches reports whether live has all that desired says. The webhooks are compared whole, which
// BuildConfiguration makes possible by leaving nothing to be defaulted.
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
