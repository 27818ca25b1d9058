// Command openshift-apiserver is the upstream kube-apiserver with OpenShift's admission, which chooses the
// SecurityContextConstraints of a Pod. The plugins are OpenShift's own. Their registration, order and exemption of a
// few namespaces follow openshift/kubernetes, openshift-kube-apiserver/admission. No Kubernetes source is changed.
package main

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	securityv1 "github.com/openshift/api/security/v1"
	"github.com/openshift/apiserver-library-go/pkg/securitycontextconstraints/sccadmission"
	securityinformers "github.com/openshift/client-go/security/informers/externalversions/security/v1"
	securitylisters "github.com/openshift/client-go/security/listers/security/v1"
)

const (
	constraintPlugin = sccadmission.PluginName
	execPlugin       = "security.openshift.io/SCCExecRestrictions"

	// resync is the interval at which the informer processes all its objects again.
	resync = 10 * time.Minute
	// crdInterval is the interval between checks for the CRD.
	crdInterval = 200 * time.Millisecond
)

// switchedOn are plugins that OpenShift enables beyond the upstream defaults. The first one refuses blockOwnerDeletion
// to users who may not update the owner's finalizers. Operators that work elsewhere often fail there.
var switchedOn = []string{"OwnerReferencesPermissionEnforcement", "PodNodeSelector", "PodTolerationRestriction", "NodeRestriction"}

// bootNamespaces run what OpenShift itself needs to start. Its SCC admission exempts them, and namespaces labelled with
// these run levels.
var (
	bootNamespaces = sets.New("default", "kube-system", "kube-public", "openshift", "openshift-infra", "openshift-node")
	bootRunLevels  = sets.New("0", "1")
)

const runLevelLabel = "openshift.io/run-level"

func main() { os.Exit(cli.Run(newCommand())) }

// newCommand is app.NewAPIServerCommand of k8s.io/kubernetes with changed options, because that function offers no way
// to change them.
func newCommand() *cobra.Command {
	s := options.NewServerRunOptions()
	addConstraints(s)
	ctx := genericapiserver.SetupSignalContext()
	registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
	gate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	cmd := &cobra.Command{
		Use:          "kube-apiserver",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return registry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(s.Logs, gate); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			gate.(featuregate.MutableFeatureGate).AddMetrics()
			registry.AddMetrics()
			return app.Run(ctx, completed)
		},
	}
	cmd.SetContext(ctx)
	named := s.Flags()
	verflag.AddFlags(named.FlagSet("global"))
	globalflag.AddGlobalFlags(named.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, f := range named.FlagSets {
		cmd.Flags().AddFlagSet(f)
	}
	return cmd
}

// addConstraints registers the two plugins after Kubernetes' own and before mutating webhooks. A registered plugin is
// on unless it is listed as off.
func addConstraints(s *options.ServerRunOptions) {
	a := s.Admission.GenericAdmission
	a.Plugins.Register(constraintPlugin, func(io.Reader) (admission.Interface, error) {
		return &constraint{constraintAdmission: sccadmission.NewConstraint()}, nil
	})
	a.Plugins.Register(execPlugin, func(io.Reader) (admission.Interface, error) {
		return &execRestriction{execAdmission: sccadmission.NewSCCExecRestrictions()}, nil
	})
	var order []string
	for _, p := range a.RecommendedPluginOrder {
		if p == mutatingwebhook.PluginName {
			order = append(order, constraintPlugin, execPlugin)
		}
		order = append(order, p)
	}
	a.RecommendedPluginOrder = order
	a.DefaultOffPlugins = a.DefaultOffPlugins.Difference(sets.New(switchedOn...))
}

// exemption knows the namespaces in which the plugins do nothing.
type exemption struct{ namespaces corev1listers.NamespaceLister }

func (e *exemption) exempt(a admission.Attributes) bool {
	if bootNamespaces.Has(a.GetNamespace()) {
		return true
	}
	ns, err := e.namespaces.Get(a.GetNamespace())
	// A namespace that is too new for the cache is not a boot namespace.
	return err == nil && bootRunLevels.Has(ns.Labels[runLevelLabel])
}

// wanted are the initializers that both plugins of OpenShift implement.
type wanted interface {
	admission.ValidationInterface
	admission.InitializationValidator
	initializer.WantsAuthorizer
	initializer.WantsExternalKubeInformerFactory
	SetSecurityInformers(securityinformers.SecurityContextConstraintsInformer)
}

type constraintAdmission interface {
	wanted
	admission.MutationInterface
}

// constraint is the plugin that chooses and checks a Pod's SCC.
type constraint struct {
	constraintAdmission
	exemption
}

var _ initializer.WantsDynamicClient = &constraint{}

func (c *constraint) SetDynamicClient(d dynamic.Interface) { c.SetSecurityInformers(sharedInformer(d)) }

func (c *constraint) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	c.namespaces = f.Core().V1().Namespaces().Lister()
	c.constraintAdmission.SetExternalKubeInformerFactory(f)
}

func (c *constraint) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if c.exempt(a) {
		return nil
	}
	return c.constraintAdmission.Admit(ctx, a, o)
}

func (c *constraint) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if c.exempt(a) {
		return nil
	}
	return c.constraintAdmission.Validate(ctx, a, o)
}

type execAdmission interface {
	wanted
	SetExternalKubeClientSet(client kubernetes.Interface)
}

// execRestriction is the plugin that refuses exec and attach into a Pod that the caller could not have created.
type execRestriction struct {
	execAdmission
	exemption
}

var (
	_ initializer.WantsDynamicClient         = &execRestriction{}
	_ initializer.WantsExternalKubeClientSet = &execRestriction{}
)

func (e *execRestriction) SetDynamicClient(d dynamic.Interface) {
	e.SetSecurityInformers(sharedInformer(d))
}

func (e *execRestriction) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	e.namespaces = f.Core().V1().Namespaces().Lister()
	e.execAdmission.SetExternalKubeInformerFactory(f)
}

func (e *execRestriction) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if e.exempt(a) {
		return nil
	}
	return e.execAdmission.Validate(ctx, a, o)
}

// informer reads SCCs, which are custom resources here, through the API server's own dynamic client.
type informer struct{ cache.SharedIndexInformer }

func (i *informer) Informer() cache.SharedIndexInformer { return i.SharedIndexInformer }

func (i *informer) Lister() securitylisters.SecurityContextConstraintsLister {
	return securitylisters.NewSecurityContextConstraintsLister(i.GetIndexer())
}

var (
	once   sync.Once
	shared *informer
)

func sharedInformer(d dynamic.Interface) *informer {
	once.Do(func() {
		s := source{d.Resource(securityv1.GroupVersion.WithResource("securitycontextconstraints"))}
		lw := plainLists{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
		shared = &informer{cache.NewSharedIndexInformer(lw, &securityv1.SecurityContextConstraints{}, resync, cache.Indexers{})}
		go func() {
			// The CRD is created after the API server starts. The informer itself would back off for up to a minute.
			for {
				if _, err := s.list(context.Background(), metav1.ListOptions{Limit: 1}); err == nil {
					break
				}
				time.Sleep(crdInterval)
			}
			shared.Run(make(chan struct{}))
		}()
	})
	return shared
}

// plainLists makes the informer list before it watches. A watch that streams the list marks its end with an annotation
// that the conversion below drops.
type plainLists struct{ *cache.ListWatch }

func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// source reads SCCs as typed objects.
type source struct{ dynamic.ResourceInterface }

func (s source) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	found, err := s.List(ctx, o)
	if err != nil {
		return nil, err
	}
	typed := &securityv1.SecurityContextConstraintsList{
		ListMeta: metav1.ListMeta{ResourceVersion: found.GetResourceVersion(), Continue: found.GetContinue()},
	}
	for i := range found.Items {
		scc, err := typedSCC(&found.Items[i])
		if err != nil {
			return nil, err
		}
		typed.Items = append(typed.Items, *scc)
	}
	return typed, nil
}

func (s source) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.SendInitialEvents, o.ResourceVersionMatch = nil, ""
	w, err := s.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return e, true
		}
		scc, err := typedSCC(u)
		if err != nil {
			// The schema accepts only objects that convert.
			return e, false
		}
		e.Object = scc
		return e, true
	}), nil
}

func typedSCC(u *unstructured.Unstructured) (*securityv1.SecurityContextConstraints, error) {
	out := &securityv1.SecurityContextConstraints{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}
