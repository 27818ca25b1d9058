package admission

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// checkMetadata refuses more labels, owners and finalizers than webhookpath.MaxMetadata. Kubernetes has no bound but the
// object's, and an object with 1.5 MiB of them takes up to 20 times as much of the manager's memory. An update may keep what
// an object has.
func checkMetadata(req webhook.AdmissionRequest) error {
	var now, before metav1.PartialObjectMetadata
	if err := Decode(req.Object.Raw, &now); err != nil {
		return err
	}
	if len(req.OldObject.Raw) > 0 {
		if err := Decode(req.OldObject.Raw, &before); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name        string
		has, before int
	}{
		{"labels", len(now.Labels), len(before.Labels)},
		{"ownerReferences", len(now.OwnerReferences), len(before.OwnerReferences)},
		{"finalizers", len(now.Finalizers), len(before.Finalizers)},
	} {
		if f.has > max(f.before, webhookpath.MaxMetadata) {
			return Invalid("metadata.%s has %d entries, and a %s may have %d: remove some", f.name, f.has, req.Kind.Kind, webhookpath.MaxMetadata)
		}
	}
	return nil
}
