package cli

import (
	"fmt"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/names"
	"github.com/sonde-operator/sonde/internal/kind"
)

// connection to the cluster that the flags select.
type connection struct {
	client    client.WithWatch
	config    *rest.Config
	names     names.Source
	namespace string
}

func (p *plugin) connect() (*connection, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.ContentType = runtime.ContentTypeJSON
	config.WarningHandler = rest.NewWarningWriter(p.streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	log.SetLogger(logr.Discard()) // otherwise a client that is made late prints a stack trace
	// Without a mapper, the client would first request all kinds from the server.
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme(), Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	n, err := names.NewSource(config)
	if err != nil {
		return nil, err
	}
	return &connection{client: c, config: config, names: n, namespace: namespace}, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(authenticationv1.AddToScheme(s))
	utilruntime.Must(authorizationv1.AddToScheme(s))
	return s
}

func mapper() apimeta.RESTMapper {
	m := apimeta.NewDefaultRESTMapper(nil)
	add := func(name, plural string) {
		m.AddSpecific(v1alpha1.GroupVersion.WithKind(name), v1alpha1.GroupVersion.WithResource(plural),
			v1alpha1.GroupVersion.WithResource(plural), apimeta.RESTScopeNamespace)
	}
	for _, k := range kind.Captures {
		add(k.Name, k.Resource)
	}
	add("ResultAccess", "resultaccesses")
	add(kind.Intercept.Name, kind.Intercept.Resource)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Service"), apimeta.RESTScopeNamespace)
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), apimeta.RESTScopeRoot)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), apimeta.RESTScopeRoot)
	for singular, plural := range map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"} {
		apps := schema.GroupVersion{Group: "apps", Version: "v1"}
		m.AddSpecific(apps.WithKind(singular), apps.WithResource(plural), apps.WithResource(plural), apimeta.RESTScopeNamespace)
	}
	return m
}
