package main

import (
	"context"
	"errors"
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

	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/internal/wire/text"
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
	// irreparable objects cannot be changed back by an apply, so an upgrade would fail. claims of them are PersistentVolumeClaims.
	irreparable []string
	claims      int
	// refused objects may be unchanged: the API server refuses what the chart has, for example because of a policy. An upgrade would fail.
	refused []string
}

// blocked is the number of objects at which an upgrade would fail.
func (d *drift) blocked() int { return len(d.irreparable) + len(d.refused) }

func (d *drift) String() string {
	return strings.Join(slices.Concat(d.irreparable, d.refused, d.repairable), ", ")
}

// warning says what others have changed, and what to do about it. A report is cut, so the advice comes before the objects.
func (d *drift) warning(mode release.Drift) string {
	message := "others have changed the release"
	if len(d.irreparable)+len(d.repairable) == 0 {
		message = "the release cannot be compared with the chart"
	}
	if n := d.blocked(); mode == release.DriftRepair && n > 0 && len(d.repairable) > 0 {
		message += fmt.Sprintf(", and an upgrade would fail at %d of the objects, so none is repaired", n)
	}
	if len(d.irreparable) > 0 {
		message += ". " + d.advice(mode)
	}
	return message + ": " + d.String()
}

// advice says what to do about irreparable objects. In most cases someone has enlarged a volume. It advises to delete an object only if a
// repair then creates it again: not with drift Warn, and not while the upgrade would fail at another object. The user has to request the
// repair: with drift Ignore, requested attempts repair, too, but no check follows.
func (d *drift) advice(mode release.Drift) string {
	advice := "If an upgrade cannot change an object back, write what it has now, such as the size of a volume, into the values, or change it back by hand"
	switch {
	case d.claims > 0:
		advice += " (do not delete a " + claimKind + ": its data would be lost)"
	case mode == release.DriftRepair && d.blocked() == 1:
		advice += ", or, if it holds no data, delete it and request another attempt, which creates it again"
	}
	return advice
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
		if apierrors.IsInvalid(err) {
			d.block(info.Mapping.GroupVersionKind.Kind, name, err)
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

// maxRefusal of the API server's text about one object, in bytes.
const maxRefusal = 200

// block notes an object whose apply the API server refuses as invalid.
func (d *drift) block(kind, name string, err error) {
	refusal := err.Error()
	var status apierrors.APIStatus
	isAPI := errors.As(err, &status)
	if isAPI {
		refusal = status.Status().Message
	}
	if _, fields, ok := strings.Cut(refusal, " is invalid: "); ok { // before it is the name of the object
		refusal = fields
	}
	refusal = text.OneLine(secrets.hide(refusal), maxRefusal) // hidden before the cut: a part of a secret would not be recognized
	if !isAPI || !isOfFields(status.Status().Details) {
		d.refused = append(d.refused, fmt.Sprintf("%s: the API server refuses the chart's version (%s)", name, refusal))
		return
	}
	d.irreparable = append(d.irreparable, fmt.Sprintf("%s cannot be changed back by an upgrade (%s)", name, refusal))
	if kind == claimKind {
		d.claims++
	}
}

// isOfFields reports whether an apply is refused because the fields of the object may not change so, or because an item that others have
// added duplicates one of the chart, such as another port of a Service with the same name. A policy names no field.
func isOfFields(details *metav1.StatusDetails) bool {
	if details == nil || len(details.Causes) == 0 {
		return false
	}
	for _, c := range details.Causes {
		if c.Field == "" || c.Type != metav1.CauseTypeForbidden && c.Type != metav1.CauseTypeFieldValueDuplicate && !isImmutable(c.Message) {
			return false
		}
	}
	return true
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
