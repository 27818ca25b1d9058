package fluentpvc

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// baseline is the pod security standard of that name: no host namespaces, hostPath volumes, host ports, privileged containers,
// further capabilities, unmasked /proc, and more. So a FluentPVC's own containers give no node. Its mounts and variables are in the Pod's
// other containers, too, and a privileged one of these gives a node.
var (
	baseline  = podsecurityapi.LevelVersion{Level: podsecurityapi.LevelBaseline, Version: podsecurityapi.LatestVersion()}
	evaluator = func() podsecurity.Evaluator {
		e, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
		utilruntime.Must(err)
		return e
	}()
)

// checkBaseline returns an error at p for each rule of baseline that a Pod would break.
func checkBaseline(p *field.Path, m *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	var list field.ErrorList
	for _, result := range evaluator.EvaluatePod(baseline, m, spec) {
		if result.Allowed {
			continue
		}
		broken := result.ForbiddenReason
		if result.ForbiddenDetail != "" {
			broken += " (" + result.ForbiddenDetail + ")"
		}
		list = append(list, field.Forbidden(p, text.Ellipsis(broken, 2*maxValueBytes)+": the pod security standard baseline does not allow it"))
	}
	return list
}
