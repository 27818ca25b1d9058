package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// portNumber returns the number of the flag --port. It reads the target's spec only if the flag has a name.
func (c *interceptCommand) portNumber(ctx context.Context, conn *connection) (int32, error) {
	if !strings.ContainsFunc(c.port, unicode.IsLetter) { // each name has a letter
		n, _ := strconv.ParseInt(c.port, 10, 32)
		return int32(n), nil // Build refuses other numbers than those of ports
	}
	namespace := cmp.Or(c.request.TargetNamespace, conn.namespace)
	target := fmt.Sprintf("%s %s/%s", c.request.Target.Kind, namespace, c.request.Target.Name)
	spec, err := readPodSpec(ctx, conn, c.request.Target, namespace)
	switch {
	case apierrors.IsForbidden(err): // explain would name a role of Sonde
		return 0, fmt.Errorf("--port %s: to find the number of this port, the plugin would have to read %s, which you may not: write the number", c.port, target)
	case err != nil:
		return 0, fmt.Errorf("--port %s: read %s: %w", c.port, target, err)
	}
	containers := slices.Concat(spec.Containers, spec.InitContainers) // a sidecar can be among the latter
	if name, workload := c.request.Container, target; name != "" {
		containers = slices.DeleteFunc(containers, func(c corev1.Container) bool { return c.Name != name })
		if target = fmt.Sprintf("container %s of %s", name, target); len(containers) == 0 {
			return 0, fmt.Errorf("--port %s: %s has no container %s: write another --container, or omit it", c.port, workload, name)
		}
	}
	found, names := tcpPorts(containers, c.port)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return 0, fmt.Errorf("--port %s: several ports of %s have this name, with different numbers: add --container, or write the number", c.port, target)
	case len(names) > 0:
		return 0, fmt.Errorf("--port %s: no TCP port of %s has this name: write one of %s, or the number", c.port, target, strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("--port %s: no TCP port of %s has a name: write the number of the port on which the container listens", c.port, target)
}

// tcpPorts returns the numbers of the TCP ports with this name, and the names of all other TCP ports.
func tcpPorts(containers []corev1.Container, name string) (numbers []int32, others []string) {
	for _, c := range containers {
		for _, port := range c.Ports {
			tcp := port.Protocol == "" || port.Protocol == corev1.ProtocolTCP
			switch {
			case tcp && port.Name == name && !slices.Contains(numbers, port.ContainerPort):
				numbers = append(numbers, port.ContainerPort)
			case tcp && port.Name != name && port.Name != "" && !slices.Contains(others, port.Name):
				others = append(others, port.Name)
			}
		}
	}
	return numbers, others
}

// readPodSpec returns the spec of a Pod, or the Pod template of a workload.
func readPodSpec(ctx context.Context, conn *connection, target v1alpha1.TargetReference, namespace string) (*corev1.PodSpec, error) {
	var o unstructured.Unstructured
	path := []string{"spec", "template", "spec"}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: string(target.Kind)})
	if target.Kind == v1alpha1.TargetPod {
		path = []string{"spec"}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(string(target.Kind)))
	}
	if err := conn.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: target.Name}, &o); err != nil {
		return nil, err
	}
	content, _, err := unstructured.NestedMap(o.Object, path...)
	if err != nil {
		return nil, err
	}
	var spec corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
		return nil, err
	}
	return &spec, nil
}
