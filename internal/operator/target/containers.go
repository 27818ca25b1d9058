package target

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxShown bounds how many containers a message names.
const maxShown = 8

// ContainersNotFound returns the names that no container of a Pod has. It knows containers, init containers and ephemeral
// containers (kubectl debug).
func ContainersNotFound(spec *corev1.PodSpec, names []string) []string {
	exists := map[string]bool{}
	for i := range spec.Containers {
		exists[spec.Containers[i].Name] = true
	}
	for i := range spec.InitContainers {
		exists[spec.InitContainers[i].Name] = true
	}
	for i := range spec.EphemeralContainers {
		exists[spec.EphemeralContainers[i].Name] = true
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return exists[name] })
}

// ContainersText lists the containers of a Pod for a message.
func ContainersText(spec *corev1.PodSpec) string {
	var all []string
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].Name)
	}
	for i := range spec.InitContainers {
		all = append(all, spec.InitContainers[i].Name+" (init)")
	}
	for i := range spec.EphemeralContainers {
		all = append(all, spec.EphemeralContainers[i].Name+" (ephemeral)")
	}
	if more := len(all) - maxShown; more > 0 {
		all = append(all[:maxShown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
