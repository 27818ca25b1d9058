package capture

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// kinds by the names that kubectl accepts, with the API group or without.
var kinds = map[string]v1alpha1.TargetKind{
	"deploy": v1alpha1.TargetDeployment, "deployment": v1alpha1.TargetDeployment,
	"deployments": v1alpha1.TargetDeployment, "deployment.apps": v1alpha1.TargetDeployment,
	"deployments.apps": v1alpha1.TargetDeployment,
	"sts":              v1alpha1.TargetStatefulSet, "statefulset": v1alpha1.TargetStatefulSet,
	"statefulsets": v1alpha1.TargetStatefulSet, "statefulset.apps": v1alpha1.TargetStatefulSet,
	"statefulsets.apps": v1alpha1.TargetStatefulSet,
	"ds":                v1alpha1.TargetDaemonSet, "daemonset": v1alpha1.TargetDaemonSet,
	"daemonsets": v1alpha1.TargetDaemonSet, "daemonset.apps": v1alpha1.TargetDaemonSet,
	"daemonsets.apps": v1alpha1.TargetDaemonSet,
	"po":              v1alpha1.TargetPod, "pod": v1alpha1.TargetPod, "pods": v1alpha1.TargetPod,
}

// ParseTarget reads KIND/NAME, or the NAME of a Deployment. Errors say what to write instead.
func ParseTarget(s string) (v1alpha1.TargetReference, error) {
	kind, name := v1alpha1.TargetDeployment, s
	if before, after, ok := strings.Cut(s, "/"); ok {
		known := false
		if kind, known = kinds[strings.ToLower(before)]; !known {
			return v1alpha1.TargetReference{}, fmt.Errorf(
				"target %q: %q is no kind of workload: write deploy/NAME, sts/NAME, ds/NAME or pod/NAME, also for the Pods of a Service", s, before)
		}
		name = after
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return v1alpha1.TargetReference{}, fmt.Errorf(
			"target %q: %q is not a valid name of a %s: write KIND/NAME, like deploy/web", s, name, kind)
	}
	return v1alpha1.TargetReference{Kind: kind, Name: name}, nil
}
