package collector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// The cache keeps at most some KiB of a Job or a Pod that a user fills, in docs/security.md.
func TestReleasersAreBounded(t *testing.T) {
	most := map[string]int{"*v1.Job": 4 << 10, "*v1.Pod": 10 << 10}
	longest := strings.Repeat("x", maxOwner)
	for name, value := range map[string]string{"longest": longest, "too long": strings.Repeat("x", 200<<10)} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("j", 253), Annotations: map[string]string{"other": value}, Labels: map[string]string{"other": value}, Finalizers: []string{value}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: value}}}
			for _, a := range []string{sondev1.AnnotationOwner, sondev1.AnnotationRun, sondev1.AnnotationGeneration, annotationRemedy, annotationSecret, annotationRelease} {
				meta.Annotations[a] = value
			}
			meta.Annotations[sondev1.AnnotationRun], meta.Annotations[annotationRelease] = value[:maxNumber], value[:2*naming.MaxLabel]
			for _, l := range []string{sondev1.LabelKind, sondev1.LabelUID} {
				meta.Labels[l] = strings.Repeat("l", 63)
			}
			for range 100 {
				meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{Name: value[:len(value)-40], UID: types.UID(strings.Repeat("u", 36))})
			}
			pod := &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{
				Message: value, Reason: value, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Message: value}, {Type: "other", Message: value}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "other"}, {Name: release.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: strings.Repeat("m", release.MaxReport)}}}},
			}}
			for _, o := range []any{pod, &batchv1.Job{ObjectMeta: meta}} {
				kept, err := strip(o)
				if err != nil {
					t.Fatal(err)
				}
				b, err := json.Marshal(kept)
				if kind := fmt.Sprintf("%T", o); err != nil || len(b) > most[kind] {
					t.Errorf("%d bytes of a %s are kept, want at most %d (%v)", len(b), kind, most[kind], err)
				}
			}
		})
	}
}
