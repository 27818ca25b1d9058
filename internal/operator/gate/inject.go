package gate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Operation of a JSON patch (RFC 6902). A patch keeps fields of a newer Kubernetes that these types do not have; writing the whole
// Pod would lose them.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const initContainers = "/spec/initContainers"

// maxRemoved gates are removed one by one. The API server copies the list for each such operation, so tens of thousands would take it
// seconds. A Pod cannot start with two containers of one name, so fields that these types do not have do not matter in a longer list.
const maxRemoved = 4

// Inject returns the patch that puts the gate before all init containers of a Pod, and the annotations that name the Trace. It is
// empty for a Pod that has this gate already: the API server calls a webhook again after another one changed the Pod. Changes
// that others made to the gate stay (the user of an SCC, the mount of a token, the image of a mirror). A gate of another Trace, or
// with other arguments, is replaced. One that is no longer first is moved.
func Inject(pod *corev1.Pod, o Options) ([]Operation, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("make gate: %w", err)
	}
	if why := Hindrance(pod); why != "" {
		return nil, fmt.Errorf("make gate: the Pod cannot have one: %s", why)
	}
	return append(containers(pod, o), annotations(pod, o)...), nil
}

func containers(pod *corev1.Pod, o Options) []Operation {
	inits := pod.Spec.InitContainers
	gate, first := Container(o, pod), slices.IndexFunc(inits, isGate)
	if first >= 0 && ours(pod, inits[first], gate, o) {
		if first == 0 && !slices.ContainsFunc(inits[1:], isGate) {
			return nil
		}
		gate = inits[first]
	}
	if len(inits) == 0 {
		return []Operation{{Op: "add", Path: initContainers, Value: []corev1.Container{gate}}}
	}
	var ops []Operation
	for i, c := range slices.Backward(inits) { // from the end, so that indices stay valid
		if isGate(c) {
			ops = append(ops, Operation{Op: "remove", Path: initContainers + "/" + strconv.Itoa(i)})
		}
	}
	if len(ops) > maxRemoved {
		return []Operation{{Op: "replace", Path: initContainers, Value: append([]corev1.Container{gate}, slices.DeleteFunc(slices.Clone(inits), isGate)...)}}
	}
	return append(ops, Operation{Op: "add", Path: initContainers + "/0", Value: gate})
}

// ours reports whether c is the gate that these options put into the Pod before.
func ours(pod *corev1.Pod, c, gate corev1.Container, o Options) bool {
	sc := c.SecurityContext
	return pod.Annotations[sondev1.AnnotationGatedByUID] == o.TraceUID &&
		slices.Equal(c.Command, gate.Command) && slices.Equal(c.Args, gate.Args) && c.RestartPolicy == nil && c.Lifecycle == nil &&
		sc != nil && sc.Privileged == nil && sc.RunAsNonRoot != nil && *sc.RunAsNonRoot
}

func annotations(pod *corev1.Pod, o Options) []Operation {
	want := []struct{ key, value string }{
		{sondev1.AnnotationGatedBy, o.TraceNamespace + "/" + o.TraceName},
		{sondev1.AnnotationGatedByUID, o.TraceUID},
	}
	if len(pod.Annotations) == 0 {
		value := map[string]string{}
		for _, w := range want {
			value[w.key] = w.value
		}
		return []Operation{{Op: "add", Path: "/metadata/annotations", Value: value}}
	}
	var ops []Operation
	for _, w := range want {
		if pod.Annotations[w.key] != w.value {
			ops = append(ops, Operation{Op: "add", Path: "/metadata/annotations/" + escape(w.key), Value: w.value})
		}
	}
	return ops
}

// escape makes a key part of a JSON pointer (RFC 6901).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
