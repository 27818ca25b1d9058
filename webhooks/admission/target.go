package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// +kubebuilder:rbac:groups="",resources=namespaces;pods,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets,verbs=get

// IsNamespaceName reports whether a namespace could have this name. Malformed names never reach a lookup.
func IsNamespaceName(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// IsObjectName reports whether a workload, a Pod or one of Sonde's objects could have this name.
func IsObjectName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// isHub reports whether a cluster admin has opened namespace for targets elsewhere.
func isHub(ctx context.Context, live client.Reader, namespace string) (bool, error) {
	var ns corev1.Namespace
	if err := live.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return false, fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	return ns.Labels[sondev1.LabelHub] == "true", nil
}

// TargetNamespace returns the namespace of a target. It refuses one that does not exist or is being deleted.
func TargetNamespace(ctx context.Context, live client.Reader, name string) (*corev1.Namespace, error) {
	var ns corev1.Namespace
	err := live.Get(ctx, client.ObjectKey{Name: name}, &ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, Invalid("namespace %s not found: set targetNamespace to the namespace that the target runs in", name)
	case err != nil:
		return nil, fmt.Errorf("get namespace %s: %w", name, err)
	case !ns.DeletionTimestamp.IsZero():
		return nil, Invalid("namespace %s is being deleted: nothing can be captured there any more", name)
	}
	return &ns, nil
}

// TargetPodSpec returns the Pod template of a workload, or the spec of a Pod. It reads live: a cache could answer with the
// template before a change. For a target that does not exist it returns a NotFound error of the API server.
func TargetPodSpec(ctx context.Context, live client.Reader, namespace string, ref sondev1.TargetReference) (*corev1.PodSpec, error) {
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
		return nil, Invalid("targetRef.kind %q is not known: write Deployment, StatefulSet, DaemonSet or Pod", text.Ellipsis(string(ref.Kind), MaxMessageBytes))
	}
	switch err := live.Get(ctx, key, from); {
	case errors.Is(err, fewreads.ErrTooLarge):
		return nil, Invalid("%s: %v: remove what makes it large, such as annotations", TargetText(namespace, ref), err)
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", ref.Kind, key, err)
	}
	kept := &corev1.PodSpec{
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID, InitContainers: named(spec.InitContainers), Containers: named(spec.Containers),
	}
	for i := range spec.EphemeralContainers {
		kept.EphemeralContainers = append(kept.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: spec.EphemeralContainers[i].Name},
		})
	}
	return kept, nil
}

// named returns containers with their names and the numbers of their ports alone.
func named(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		c := corev1.Container{Name: containers[i].Name}
		for _, p := range containers[i].Ports {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: p.ContainerPort})
		}
		kept = append(kept, c)
	}
	return kept
}

// TargetText names a target in a message, such as "Deployment shop/web".
func TargetText(namespace string, ref sondev1.TargetReference) string {
	return string(ref.Kind) + " " + namespace + "/" + ref.Name
}

// TargetNotFound refuses a target that does not exist.
func TargetNotFound(namespace string, ref sondev1.TargetReference) error {
	return Invalid("%s not found: write a name that \"kubectl get %ss -n %s\" shows",
		TargetText(namespace, ref), strings.ToLower(string(ref.Kind)), namespace)
}
