package gather

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/version"
)

const (
	// maxLog is how much of the end of a log is kept, in bytes, and maxLines in lines.
	maxLog, maxLines = 8 << 20, 50_000
	// cutNote is the first line of a log whose beginning is not kept.
	cutNote = "[only the end of this log is here]\n"
	// pageSize limits one response of the API server.
	pageSize = 500
)

// source is a kind of objects to collect.
type source struct {
	schema.GroupVersionResource
	// own restricts the objects to the operator's namespace.
	own bool
	// prefix of the names; empty selects all.
	prefix string
	// optional says that some clusters do not have the API.
	optional bool
	// keep are the fields of the status to collect; empty collects the whole object.
	keep []string
}

// kinds to collect. Secrets and the ConfigMaps of captures are not among them.
var kinds = []source{
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "packetcaptures")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "traces")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "resultaccesses")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "fluentpvcs")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "fluentpvcbindings")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "interceptrequests")},
	{GroupVersionResource: gvr(v1alpha1.GroupVersion.Group, "v1alpha1", "collectors")},
	{GroupVersionResource: gvr("", "v1", "pods"), own: true},
	{GroupVersionResource: gvr("", "v1", "services"), own: true},
	{GroupVersionResource: gvr("", "v1", "serviceaccounts"), own: true},
	{GroupVersionResource: gvr("", "v1", "configmaps"), own: true, prefix: "sonde-config"},
	{GroupVersionResource: gvr("events.k8s.io", "v1", "events"), own: true},
	{GroupVersionResource: gvr("apps", "v1", "deployments"), own: true},
	{GroupVersionResource: gvr("apps", "v1", "replicasets"), own: true},
	{GroupVersionResource: gvr("batch", "v1", "jobs"), own: true},
	{GroupVersionResource: gvr("coordination.k8s.io", "v1", "leases"), own: true},
	{GroupVersionResource: gvr("discovery.k8s.io", "v1", "endpointslices"), own: true},
	{GroupVersionResource: gvr("networking.k8s.io", "v1", "networkpolicies"), own: true},
	{GroupVersionResource: gvr("policy", "v1", "poddisruptionbudgets"), own: true},
	{GroupVersionResource: gvr("rbac.authorization.k8s.io", "v1", "roles"), own: true},
	{GroupVersionResource: gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), own: true},
	{GroupVersionResource: gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), prefix: "sonde-fluentpvc"},
	{GroupVersionResource: gvr("rbac.authorization.k8s.io", "v1", "clusterroles"), prefix: "sonde"},
	{GroupVersionResource: gvr("rbac.authorization.k8s.io", "v1", "clusterrolebindings"), prefix: "sonde"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "packetcaptures.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "traces.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "resultaccesses.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "fluentpvcs.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "fluentpvcbindings.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "interceptrequests.monitoring"},
	{GroupVersionResource: gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), prefix: "collectors.monitoring"},
	{GroupVersionResource: gvr("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"), prefix: "sonde"},
	{GroupVersionResource: gvr("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"), prefix: "sonde"},
	{GroupVersionResource: gvr("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"), prefix: "sonde"},
	{GroupVersionResource: gvr("scheduling.k8s.io", "v1", "priorityclasses"), prefix: "sonde"},
	{GroupVersionResource: gvr("security.openshift.io", "v1", "securitycontextconstraints"), prefix: "sonde", optional: true},
	{GroupVersionResource: gvr("monitoring.coreos.com", "v1", "servicemonitors"), own: true, optional: true},
	{GroupVersionResource: gvr("monitoring.coreos.com", "v1", "prometheusrules"), own: true, optional: true},
	{GroupVersionResource: gvr("console.openshift.io", "v1", "consoleyamlsamples"), prefix: "sonde", optional: true},
	{GroupVersionResource: gvr("console.openshift.io", "v1", "consoleclidownloads"), prefix: "sonde", optional: true},
	{GroupVersionResource: gvr("", "v1", "nodes"), keep: []string{"nodeInfo", "conditions", "allocatable"}},
}

func gvr(group, v, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: v, Resource: resource}
}

// Gatherer collects from one cluster.
type Gatherer struct {
	objects   dynamic.Interface
	raw       rest.Interface
	namespace string
	to        Sink
	// failures say what could not be read and why. They are written to the result too.
	failures []string
}

// New returns a Gatherer for the operator in a namespace.
func New(config *rest.Config, namespace string, to Sink) (*Gatherer, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &corev1.SchemeGroupVersion, "/api"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	raw, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Gatherer{objects: objects, raw: raw, namespace: namespace, to: to}, nil
}

// Run collects everything. failures say what could not be read; they are also in the result. The error says that
// nothing could be read, or that the result could not be written.
func (g *Gatherer) Run(ctx context.Context) (failures []string, err error) {
	if err := g.versions(ctx); err != nil {
		return nil, err
	}
	read := 0
	for _, k := range kinds {
		items, err := g.list(ctx, k)
		if k.optional && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			g.failures = append(g.failures, fmt.Sprintf("%s: %v", k.Resource, err))
			continue
		}
		read++
		if err := g.put(k, items); err != nil {
			return nil, err
		}
		if k.Resource == "pods" {
			if err := g.logs(ctx, items); err != nil {
				return nil, err
			}
		}
	}
	if read == 0 {
		return nil, fmt.Errorf("nothing could be read: %s", g.failures[0])
	}
	if len(g.failures) > 0 {
		err = g.to.Put("errors.txt", text([]byte(strings.Join(g.failures, "\n")+"\n")))
	}
	return g.failures, err
}

func (g *Gatherer) versions(ctx context.Context) error {
	server, err := g.raw.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("get the version of the cluster: %w", err)
	}
	if err := g.to.Put("server-version.json", server); err != nil {
		return err
	}
	return g.to.Put("plugin-version.txt", []byte(version.Version+"\n"))
}

func (g *Gatherer) list(ctx context.Context, k source) ([]unstructured.Unstructured, error) {
	var from dynamic.ResourceInterface = g.objects.Resource(k.GroupVersionResource)
	if k.own {
		from = g.objects.Resource(k.GroupVersionResource).Namespace(g.namespace)
	}
	var items []unstructured.Unstructured
	for next := ""; ; {
		page, err := from.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if strings.HasPrefix(page.Items[i].GetName(), k.prefix) {
				items = append(items, page.Items[i])
			}
		}
		if next = page.GetContinue(); next == "" {
			return items, nil
		}
	}
}

// put writes the objects of one kind after redacting them.
func (g *Gatherer) put(k source, items []unstructured.Unstructured) error {
	var file []byte
	for i := range items {
		o := &items[i]
		object(o)
		if len(k.keep) > 0 {
			status, _, _ := unstructured.NestedMap(o.Object, "status")
			kept := map[string]any{}
			for _, field := range k.keep {
				kept[field] = status[field]
			}
			o.Object = map[string]any{"kind": o.GetKind(), "metadata": map[string]any{"name": o.GetName()}, "status": kept}
		}
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", k.Resource, o.GetName(), err)
		}
		file = append(append(file, "---\n"...), b...)
	}
	if len(items) == 0 {
		return nil
	}
	name := k.Resource
	if k.prefix != "" {
		name += "-" + strings.TrimSuffix(k.prefix, ".monitoring")
	}
	return g.to.Put("objects/"+name+".yaml", text(file))
}

// logs writes the ends of the logs of all containers, and of their previous instances.
func (g *Gatherer) logs(ctx context.Context, pods []unstructured.Unstructured) error {
	for i := range pods {
		containers, _, _ := unstructured.NestedSlice(pods[i].Object, "spec", "containers")
		for _, c := range containers {
			name, _, _ := unstructured.NestedString(c.(map[string]any), "name")
			for _, previous := range []bool{false, true} {
				if err := g.log(ctx, pods[i].GetName(), name, previous); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *Gatherer) log(ctx context.Context, pod, container string, previous bool) error {
	b, err := g.raw.Get().AbsPath("/api/v1/namespaces", g.namespace, "pods", pod, "log").
		Param("container", container).Param("previous", fmt.Sprint(previous)).Param("tailLines", strconv.Itoa(maxLines)).DoRaw(ctx)
	if previous && (apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)) {
		return nil // a container that was never restarted has no previous log
	}
	if err != nil {
		g.failures = append(g.failures, fmt.Sprintf("log of %s/%s: %v", pod, container, err))
		return nil
	}
	name := "logs/" + pod + "/" + container
	if previous {
		name += ".previous"
	}
	whole := len(b) <= maxLog && bytes.Count(b, []byte("\n")) < maxLines
	b = text(b) // before it is truncated: the rest of a secret would not be recognized
	if !whole {
		b = append([]byte(cutNote), b[max(0, len(b)-maxLog+len(cutNote)):]...)
	}
	return g.to.Put(name+".log", b)
}
