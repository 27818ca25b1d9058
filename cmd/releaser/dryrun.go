package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
)

// dryRun renders the release, and lets the API server check each object. It changes nothing, so that a release which cannot succeed
// leaves the last one as it is.
func (a *attempt) dryRun(ctx context.Context, in *input, history []*helmrelease.Release) error {
	chart, err := in.chart()
	if err != nil {
		return err
	}
	var rendered any
	if len(history) == 0 {
		i := a.newInstall(in)
		i.DryRunStrategy = action.DryRunServer
		rendered, err = i.RunWithContext(ctx, chart, in.values)
	} else {
		u := a.newUpgrade(in, history)
		u.DryRunStrategy = action.DryRunServer
		rendered, err = u.RunWithContext(ctx, a.request.Release, chart, in.values)
	}
	if err != nil {
		return err
	}
	r, ok := rendered.(*helmrelease.Release)
	if !ok {
		return fmt.Errorf("render the chart: Helm returned a %T", rendered)
	}
	objects, err := a.client.Build(strings.NewReader(r.Manifest), true)
	if err != nil {
		return err
	}
	return objects.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		_, err = dryApply(info)
		return err
	})
}

// drift is what others have changed in a release, one text for each object.
type drift struct {
	// repairable objects are missing, or an apply changes them back.
	repairable []string
	// irreparable objects cannot be changed back by an apply, so an upgrade would fail.
	irreparable []string
}

func (d *drift) String() string {
	return strings.Join(slices.Concat(d.irreparable, d.repairable), ", ")
}

// drifted returns the objects of a revision that are missing, or that differ from what the API server would make of the chart's ones.
// Fields that the chart does not set may differ.
func (a *attempt) drifted(r *helmrelease.Release) (*drift, error) {
	objects, err := a.client.Build(strings.NewReader(r.Manifest), false)
	if err != nil {
		return nil, err
	}
	d := &drift{}
	err = objects.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		name := info.Mapping.GroupVersionKind.Kind + " " + info.Name
		live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
		if apierrors.IsNotFound(err) {
			d.repairable = append(d.repairable, name+" is missing")
			return nil
		}
		if err != nil {
			return fmt.Errorf("get %s: %w", name, err)
		}
		applied, err := dryApply(info)
		if apierrors.IsInvalid(err) { // a change that an apply cannot take back, such as another port of a Service with the same name
			d.irreparable = append(d.irreparable, name+irreparable(info.Mapping.GroupVersionKind.Kind))
			return nil
		}
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(contentOf(live), contentOf(applied)) {
			d.repairable = append(d.repairable, name+" differs")
		}
		return nil
	})
	return d, err
}

// claimKind is the kind of a volume.
const claimKind = "PersistentVolumeClaim"

// irreparable says what to do about an object of a kind that an apply cannot change back. In most cases someone has enlarged a volume.
func irreparable(kind string) string {
	if kind == claimKind {
		return " differs, and cannot be changed back: write what it has now, such as its size, into the values (do not delete it: its data would be lost)"
	}
	return " differs, and cannot be changed back: write what it has now into the values, or, if it holds no data, delete it"
}

// contentOf returns the content of an object without what each write changes.
func contentOf(o runtime.Object) map[string]any {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	content := u.DeepCopy()
	content.SetManagedFields(nil)
	content.SetResourceVersion("")
	content.SetGeneration(0)
	unstructured.RemoveNestedField(content.Object, "status")
	return content.Object
}

// dryApply returns what the API server would make of an object.
func dryApply(info *resource.Info) (runtime.Object, error) {
	u, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("check %s %s: it is a %T", info.Mapping.GroupVersionKind.Kind, info.Name, info.Object)
	}
	b, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("check %s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
	}
	force := true
	applied, err := resource.NewHelper(info.Client, info.Mapping).DryRun(true).WithFieldManager(fieldManager).
		Patch(info.Namespace, info.Name, types.ApplyPatchType, b, &metav1.PatchOptions{Force: &force})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
	}
	return applied, nil
}
