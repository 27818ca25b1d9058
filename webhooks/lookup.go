package webhooks

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=namespaces;pods,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get

// isHub reports whether a cluster admin has opened namespace for targets elsewhere.
func isHub(ctx context.Context, live client.Reader, namespace string) (bool, error) {
	var ns corev1.Namespace
	if err := live.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return false, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	return ns.Labels[sondev1.LabelHub] == "true", nil
}

// liveNamespace returns a namespace that Pods can be captured in.
func liveNamespace(ctx context.Context, live client.Reader, name string) (*corev1.Namespace, error) {
	var ns corev1.Namespace
	err := live.Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, invalid("namespace %s not found: set targetNamespace to the namespace that the target runs in", name)
	case err != nil:
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	case !ns.DeletionTimestamp.IsZero():
		return nil, invalid("namespace %s is being deleted: nothing can be captured there any more", name)
	}
	return &ns, nil
}

// podSpecOf is what the Pods of a workload are made by. It reads the template live: an answer of a cache could be of before
// a change. A workload that does not exist is a NotFound error of the API server.
func podSpecOf(ctx context.Context, live client.Reader, namespace string, ref sondev1.TargetReference) (*corev1.PodSpec, error) {
	var (
		key  = client.ObjectKey{Namespace: namespace, Name: ref.Name}
		spec *corev1.PodSpec
		from client.Object
	)
	switch ref.Kind {
	case sondev1.TargetDeployment:
		o := &appsv1.Deployment{}
		from, spec = o, &o.Spec.Template.Spec
	case sondev1.TargetStatefulSet:
		o := &appsv1.StatefulSet{}
		from, spec = o, &o.Spec.Template.Spec
	case sondev1.TargetDaemonSet:
		o := &appsv1.DaemonSet{}
		from, spec = o, &o.Spec.Template.Spec
	case sondev1.TargetPod:
		o := &corev1.Pod{}
		from, spec = o, &o.Spec
	default:
		return nil, invalid("targetRef.kind %q is not known: write Deployment, StatefulSet, DaemonSet or Pod", bound(string(ref.Kind)))
	}
	if err := live.Get(ctx, key, from); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", ref.Kind, key, err)
	}
	return spec, nil
}

// notFound says that a target does not exist, and how to see what does.
func notFound(namespace string, ref sondev1.TargetReference) error {
	return invalid("%s %s/%s not found: write a name that \"kubectl get %ss -n %s\" shows",
		ref.Kind, namespace, ref.Name, strings.ToLower(string(ref.Kind)), namespace)
}
