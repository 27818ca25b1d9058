package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=persistentvolumeclaims,verbs=create

const (
	// dryRunName begins the names of dry runs, which exist nowhere.
	dryRunName = "sonde-dry-run-"
	// maxCauseBytes bounds one problem that the API server reports. It quotes values of users.
	maxCauseBytes = 512
)

// draft is an object that the API server shall validate.
type draft struct {
	object client.Object
	// origin returns the field of the FluentPVC that a field of object comes from.
	origin func(string) string
}

// build returns the objects that the operator would create for a Pod with one container, or the problems that keep it from doing
// so. A Job stands for the Pod, because the operator may not create Pods.
func build(s *sondev1.FluentPVCSpec, namespace string) (drafts []draft, problems []string) {
	meta := metav1.ObjectMeta{GenerateName: dryRunName, Namespace: namespace}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: *s.PVCSpecTemplate.DeepCopy()}

	finalizer := &batchv1.Job{ObjectMeta: meta, Spec: *s.PVCFinalizerJobSpecTemplate.DeepCopy()}
	if err := sidecar.AddVolume(&finalizer.Spec.Template.Spec, s, dryRunName); err != nil {
		problems = append(problems, "spec.pvcFinalizerJobSpecTemplate: "+err.Error())
	}

	user := corev1.Container{Name: "main", Image: "main"}
	if s.SidecarContainerTemplate.Name == user.Name {
		user.Name = "other"
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{user}, RestartPolicy: corev1.RestartPolicyNever,
		ServiceAccountName: s.PVCFinalizerJobSpecTemplate.Template.Spec.ServiceAccountName,
	}}
	if err := sidecar.Inject(pod, s, sidecar.Injection{Claim: dryRunName}); err != nil {
		problems = append(problems, "spec.sidecarContainerTemplate: "+err.Error())
	}
	injected := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}}}

	return []draft{
		{claim, func(f string) string { return "spec.pvcSpecTemplate" + strings.TrimPrefix(f, "spec") }},
		{injected, injectedOrigin(s, &pod.Spec)},
		{finalizer, finalizerOrigin(s, &finalizer.Spec.Template.Spec)},
	}, problems
}

// dryRun returns the problems that the API server finds in drafts. Its quotas, policies and webhooks for the operator's namespace
// say nothing about the namespaces of Pods, so their refusals do not count. Every other failure is an error.
func (h *Handler) dryRun(ctx context.Context, drafts []draft) ([]string, error) {
	var problems []string
	for _, d := range drafts {
		err := h.Live.Create(ctx, d.object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		switch {
		case err == nil:
		case apierrors.IsInvalid(err):
			problems = append(problems, causes(err, d.origin)...)
		case apierrors.IsBadRequest(err):
			problems = append(problems, unknownToServer(err)...)
		case apierrors.IsForbidden(err):
			ctrl.LoggerFrom(ctx).V(1).Info("Skipping validation by the API server", "reason", err.Error())
		default:
			return nil, fmt.Errorf("validate the templates by a dry run in namespace %s: %w", h.OperatorNamespace, err)
		}
	}
	// The same volume, mount or variable is in several drafts.
	slices.Sort(problems)
	return slices.Compact(problems), nil
}

// causes returns the problems of an object that is Invalid. Validation names fields; policies, whose refusals are Invalid, too, do
// not.
func causes(err error, origin func(string) string) []string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return nil
	}
	var problems []string
	for _, c := range status.ErrStatus.Details.Causes {
		if c.Field != "" {
			problems = append(problems, text.Ellipsis(origin(c.Field)+": "+c.Message, maxCauseBytes))
		}
	}
	return problems
}

// unknownToServer returns the fields that Sonde's types have and an older API server has not: it would ignore them.
func unknownToServer(err error) []string {
	_, fields, found := strings.Cut(err.Error(), "strict decoding error: ")
	if !found {
		return nil // for example, a webhook that supports no dry runs
	}
	return []string{text.Ellipsis("this cluster's API server is older than a field in the templates: "+fields, maxCauseBytes)}
}
