package capture

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/target"
)

// fieldValues returns the values of the cache's indexes, and those by which the manager selects Events.
func fieldValues(o client.Object, name string) []string {
	if e, ok := o.(*corev1.Event); ok {
		return []string{map[string]string{eventObjectUID: string(e.InvolvedObject.UID), eventReason: e.Reason}[name]}
	}
	for _, i := range target.Indexes {
		if i.Field == name {
			if values := i.Extract(o); values != nil {
				return values
			}
		}
	}
	return nil
}
