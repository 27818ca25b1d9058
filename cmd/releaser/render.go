package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/kustomize/kyaml/kio"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// renderer checks and completes the objects of a chart, hooks included: all must be in the release's namespace, and the anchor owns
// them. It implements Helm's PostRenderer.
type renderer struct {
	release   string
	namespace string
	owner     metav1.OwnerReference
	mapper    apimeta.RESTMapper
}

// Run implements PostRenderer.
func (r *renderer) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	nodes, err := kio.ParseAll(rendered.String())
	if err != nil {
		return nil, &problem{reason: release.ReasonChartInvalid, text: "the chart renders no YAML: " + err.Error()}
	}
	var outside []string
	for _, n := range nodes {
		if out, err := r.outside(n); err != nil {
			return nil, err
		} else if out != "" {
			outside = append(outside, out)
			continue
		}
		if err := r.complete(n); err != nil {
			return nil, err
		}
		if err := r.checkRead(n); err != nil {
			return nil, err
		}
	}
	if len(outside) > 0 {
		return nil, &problem{reason: release.ReasonScopeRefused, text: fmt.Sprintf(
			"the chart has objects outside of namespace %s: %s: turn them off by values, or use a chart without them", r.namespace, strings.Join(outside, ", "))}
	}
	text, err := kio.StringAll(nodes)
	return bytes.NewBufferString(text), err
}

// outside names an object that is not in the release's namespace, or returns an empty text.
func (r *renderer) outside(n *kyaml.RNode) (string, error) {
	kind := schema.FromAPIVersionAndKind(n.GetApiVersion(), n.GetKind())
	name := kind.Kind + " " + n.GetName()
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case apimeta.IsNoMatchError(err):
		return "", &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf(
			"the chart has %s of %s, which this cluster does not serve: turn it off by values, or ask an admin to install its CustomResourceDefinition", name, n.GetApiVersion())}
	case err != nil:
		return "", fmt.Errorf("find the scope of %s: %w", name, err)
	case mapping.Scope.Name() != apimeta.RESTScopeNameNamespace:
		return name + " (of the cluster)", nil
	case kind.Kind == "ConfigMap" && n.GetName() == r.owner.Name:
		return "", &problem{reason: release.ReasonScopeRefused, text: fmt.Sprintf("the chart has a ConfigMap %s, which is the operator's: choose another name", r.owner.Name)}
	case n.GetNamespace() != "" && n.GetNamespace() != r.namespace:
		return name + " in namespace " + n.GetNamespace(), nil
	}
	return "", nil
}

// stays reports whether an object is annotated to stay when the release goes. Like Helm's uninstallation it ignores case and blanks.
func stays(annotations map[string]string) bool {
	return strings.EqualFold(strings.TrimSpace(annotations[kube.ResourcePolicyAnno]), kube.KeepPolicy)
}

// complete writes into an object what Helm would add when it applies it, so that a stored manifest has all that Helm owns, and makes the
// anchor an owner, unless the chart says that the object stays when the release goes.
func (r *renderer) complete(n *kyaml.RNode) error {
	for _, set := range []kyaml.Filter{
		kyaml.SetLabel("app.kubernetes.io/managed-by", "Helm"),
		kyaml.SetAnnotation("meta.helm.sh/release-name", r.release), kyaml.SetAnnotation("meta.helm.sh/release-namespace", r.namespace),
	} {
		if err := n.PipeE(set); err != nil {
			return fmt.Errorf("label %s %s: %w", n.GetKind(), n.GetName(), err)
		}
	}
	if stays(n.GetAnnotations()) {
		return nil
	}
	owner, err := kyaml.FromMap(map[string]any{"apiVersion": r.owner.APIVersion, "kind": r.owner.Kind, "name": r.owner.Name, "uid": string(r.owner.UID)})
	if err == nil {
		err = n.PipeE(kyaml.LookupCreate(kyaml.SequenceNode, "metadata", "ownerReferences"), kyaml.Append(owner.YNode()))
	}
	if err != nil {
		return fmt.Errorf("set the owner of %s %s: %w", n.GetKind(), n.GetName(), err)
	}
	return nil
}

// checkRead refuses an object that Helm reads differently than the functions outside and complete. Helm takes the last of two fields of one
// name, resolves merge keys, and takes any object with items for a list of these. They could be elsewhere, and have no owner. checkRead uses
// Helm's decoder, because a decoder of structs also takes fields whose names differ in case, such as METADATA or nameſpace. If an annotation
// names a file of JSON, kio.StringAll writes JSON for the only object of a file. Its merge keys have another order, so both texts are read.
func (r *renderer) checkRead(n *kyaml.RNode) error {
	alone := func() (string, error) { return kio.StringAll([]*kyaml.RNode{n}) }
	for _, write := range []func() (string, error){n.String, alone} {
		text, err := write()
		if err != nil {
			return fmt.Errorf("write %s %s: %w", n.GetKind(), n.GetName(), err)
		}
		if err := r.checkText(n, text); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) checkText(n *kyaml.RNode, text string) error {
	b, err := yaml.YAMLToJSON([]byte(text))
	var read runtime.Object
	if err == nil {
		read, err = runtime.Decode(unstructured.UnstructuredJSONScheme, b)
	}
	if err != nil {
		return &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("read %s %s: %v", n.GetKind(), n.GetName(), err)}
	}
	o, one := read.(*unstructured.Unstructured)
	if one && o.GetAPIVersion() == n.GetApiVersion() && o.GetKind() == n.GetKind() && o.GetName() == n.GetName() && o.GetNamespace() == n.GetNamespace() &&
		(r.owns(o) || stays(o.GetAnnotations())) {
		return nil
	}
	return &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("%s %s is ambiguous: write each field once, quote names and annotations that are numbers, "+
		"use no merge key (<<) in its metadata and no null for ownerReferences, and write each object as a document of its own, without a field items", n.GetKind(), n.GetName())}
}

// deleteOthers deletes the objects of a manifest that another one does not have, if the anchor owns them. Like Helm it leaves an object that
// is annotated to stay, also if the annotation was added by hand.
func (r *renderer) deleteOthers(client *kube.Client, manifest, kept string) error {
	old, err := client.Build(strings.NewReader(manifest), false)
	if err != nil {
		return err
	}
	now, err := client.Build(strings.NewReader(kept), false)
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range old.Difference(now) {
		if err := ignoreNotFound(r.delete(info)); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *renderer) delete(info *resource.Info) error {
	if err := info.Get(); err != nil {
		return err
	}
	o, err := apimeta.Accessor(info.Object)
	if err != nil || !r.owns(o) || stays(o.GetAnnotations()) {
		return err
	}
	background := metav1.DeletePropagationBackground
	_, err = resource.NewHelper(info.Client, info.Mapping).DeleteWithOptions(info.Namespace, info.Name, &metav1.DeleteOptions{PropagationPolicy: &background})
	return err
}

func (r *renderer) owns(o metav1.Object) bool {
	for _, owner := range o.GetOwnerReferences() {
		if owner.UID == r.owner.UID {
			return true
		}
	}
	return false
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
