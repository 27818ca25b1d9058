package target

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/gone"
)

// NodeExists reports whether a node exists. Users may write any nodeName into a Pod. No kubelet runs a Pod on a node that does not
// exist, its Job would wait for ever, and the ceilings of nodes would not bound such Jobs.
func NodeExists(ctx context.Context, live client.Reader, name string) (bool, error) {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := live.Get(ctx, client.ObjectKey{Name: name}, node)
	if gone.Ignore(err) != nil {
		return false, fmt.Errorf("get metadata of node %s: %w", name, err)
	}
	return err == nil, nil
}
