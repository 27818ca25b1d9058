package pause_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sonde-operator/sonde/internal/operator/pause"
)

func TestRequested(t *testing.T) {
	for name, tc := range map[string]struct {
		config *corev1.ConfigMap
		want   bool
	}{
		"no ConfigMap":         {},
		"no key":               {config: config("sonde-system", nil)},
		"empty":                {config: config("sonde-system", map[string]string{pause.Key: ""})},
		"false":                {config: config("sonde-system", map[string]string{pause.Key: "false"})},
		"true":                 {config: config("sonde-system", map[string]string{pause.Key: "true"}), want: true},
		"a typing error":       {config: config("sonde-system", map[string]string{pause.Key: "ture"}), want: true},
		"in another namespace": {config: config("shop", map[string]string{pause.Key: "true"})},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			if tc.config != nil {
				b = b.WithObjects(tc.config)
			}
			got, err := pause.Requested(t.Context(), b.Build(), "sonde-system")
			if err != nil || got != tc.want {
				t.Errorf("Requested() = %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func config(namespace string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pause.ConfigMapName}, Data: data}
}
