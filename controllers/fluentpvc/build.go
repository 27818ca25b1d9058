package fluentpvc

import (
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
)

// KindBinding is the value of sondev1.LabelKind on the objects of a binding.
const KindBinding = "FluentPVCBinding"

const app = "fluent-pvc"

// BuildBinding returns the binding of a Pod whose claim has this key.
func BuildBinding(f *sondev1.FluentPVC, pod sondev1.ObjectReference, claim types.NamespacedName) *sondev1.FluentPVCBinding {
	return &sondev1.FluentPVCBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, Labels: appLabels(f.Name)},
		Spec: sondev1.FluentPVCBindingSpec{
			FluentPVC: sondev1.ObjectReference{Name: f.Name, UID: string(f.UID)},
			Pod:       pod,
			Template:  *f.Spec.DeepCopy(),
		},
	}
}

// BuildClaim returns the claim of a binding. It has no owner: if the binding is lost, the data stays. signed names the FluentPVC, so
// that the binding can be made again from the claim.
func BuildClaim(b *sondev1.FluentPVCBinding, signed string) *corev1.PersistentVolumeClaim {
	annotations := annotationsOf(b)
	annotations[sondev1.AnnotationClaim] = signed
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, Labels: labelsOf(b), Annotations: annotations},
		Spec:       *b.Spec.Template.PVCSpecTemplate.DeepCopy(),
	}
}

// BuildJob returns the finalizer Job of an attempt. The operator deletes it together with its binding, so a TTL of the template is
// left out: a Job that vanishes before the operator has read its end would run again.
func BuildJob(b *sondev1.FluentPVCBinding, attempt int32) (*batchv1.Job, error) {
	spec := b.Spec.Template.PVCFinalizerJobSpecTemplate.DeepCopy()
	spec.TTLSecondsAfterFinished = nil
	if spec.Template.Labels == nil {
		spec.Template.Labels = map[string]string{}
	}
	maps.Copy(spec.Template.Labels, labelsOf(b))
	if err := sidecar.AddVolume(&spec.Template.Spec, &b.Spec.Template, b.Name); err != nil {
		return nil, err
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: jobName(b, attempt), Labels: labelsOf(b), Annotations: annotationsOf(b),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: sondev1.GroupVersion.String(), Kind: KindBinding, Name: b.Name, UID: b.UID, Controller: new(true),
			}},
		},
		Spec: *spec,
	}, nil
}

// jobName names the Job of an attempt. The name of a binding leaves room for two digits; with more, a long one is cut.
func jobName(b *sondev1.FluentPVCBinding, attempt int32) string {
	return naming.Cut(b.Name+"-"+strconv.Itoa(int(attempt)), naming.MaxLabel)
}

// hashSuffix is what naming.Cut puts behind a name that it cuts, in bytes.
const hashSuffix = 9

// jobPrefix begins the names of all Jobs of a binding, also those that are cut.
func jobPrefix(b *sondev1.FluentPVCBinding) string {
	return strings.TrimRight(b.Name[:min(len(b.Name), naming.MaxLabel-hashSuffix)], "-._")
}

// labelsOf returns the labels of a binding's claim and Jobs. The operator finds them by the first three; the others are for people.
func labelsOf(b *sondev1.FluentPVCBinding) map[string]string {
	all := appLabels(b.Spec.FluentPVC.Name)
	all[sondev1.LabelKind] = KindBinding
	all[sondev1.LabelUID] = string(b.UID)
	all[sondev1.LabelTargetPodUID] = b.Spec.Pod.UID
	return all
}

func appLabels(fluentPVC string) map[string]string {
	all := naming.Own()
	all[sondev1.LabelAppName] = app
	all[sondev1.LabelAppInstance] = naming.Cut(app+"-"+fluentPVC, naming.MaxLabel)
	all[sondev1.LabelAppCreatedBy] = "fluent-pvc-operator"
	return all
}

func annotationsOf(b *sondev1.FluentPVCBinding) map[string]string {
	return map[string]string{sondev1.AnnotationOwner: b.Namespace + "/" + b.Name, sondev1.AnnotationTargetPod: b.Spec.Pod.Name}
}

// owns reports whether a claim was made for the binding's Pod. A binding that was deleted and made again has another UID, its Pod
// has the same.
func owns(b *sondev1.FluentPVCBinding, claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[sondev1.LabelKind] == KindBinding && claim.Labels[sondev1.LabelTargetPodUID] == b.Spec.Pod.UID
}
