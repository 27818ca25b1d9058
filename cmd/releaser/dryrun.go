package main

import (
	"context"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		u := a.newUpgrade(in)
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
		return dryApply(info)
	})
}

func dryApply(info *resource.Info) error {
	u, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("check %s %s: it is a %T", info.Mapping.GroupVersionKind.Kind, info.Name, info.Object)
	}
	b, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("check %s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
	}
	force := true
	_, err = resource.NewHelper(info.Client, info.Mapping).DryRun(true).WithFieldManager(fieldManager).
		Patch(info.Namespace, info.Name, types.ApplyPatchType, b, &metav1.PatchOptions{Force: &force})
	if err != nil {
		return fmt.Errorf("%s %s: %w", info.Mapping.GroupVersionKind.Kind, info.Name, err)
	}
	return nil
}
