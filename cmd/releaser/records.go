package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// records are the Secrets in which Helm keeps the revisions of a release. The anchor owns them, so that they go with it.
type records struct {
	typedcorev1.SecretInterface

	owner metav1.OwnerReference
}

func ownerOf(a release.Anchor) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: a.Name, UID: types.UID(a.UID)}
}

// Create implements SecretInterface.
func (r *records) Create(ctx context.Context, s *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	s.OwnerReferences = []metav1.OwnerReference{r.owner}
	return r.SecretInterface.Create(ctx, s, o)
}

// Update implements SecretInterface.
func (r *records) Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	s.OwnerReferences = []metav1.OwnerReference{r.owner}
	return r.SecretInterface.Update(ctx, s, o)
}

// check refuses a release that Helm or another Collector has made.
func (r *records) check(ctx context.Context, name string) error {
	list, err := r.List(ctx, metav1.ListOptions{LabelSelector: "owner=helm,name=" + name})
	if err != nil {
		return fmt.Errorf("list the revisions of the release: %w", err)
	}
	for i := range list.Items {
		owners := list.Items[i].OwnerReferences
		switch {
		case slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == r.owner.UID }):
		case slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == r.owner.Kind && o.Name == r.owner.Name }):
			return &problem{
				reason: release.ReasonEarlierRelease, uncounted: true, retry: true,
				text: "the release of a Collector of this name that was deleted is still being removed",
			}
		default:
			return &problem{
				reason: release.ReasonReleaseNameTaken,
				text:   fmt.Sprintf("Helm has a release %s in this namespace already, which no Collector made: uninstall it, or choose another tenant.instance", name),
			}
		}
	}
	return nil
}

func isNotFound(err error) bool { return errors.Is(err, driver.ErrReleaseNotFound) }
