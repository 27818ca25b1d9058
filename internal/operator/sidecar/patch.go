package sidecar

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Patch returns the difference that Inject made to a Pod. It names only what changed, so fields that our types do not know stay.
// jsonpatch alone compares lists by index: it would turn the first init container into the sidecar, and leave it the unknown
// fields of the other.
func Patch(before, after *corev1.Pod) ([]jsonpatch.Operation, error) {
	d := &differ{}
	d.annotation(before.Annotations, after.Annotations)
	name := func(c corev1.Container) string { return c.Name }
	list(d, "/spec/volumes", before.Spec.Volumes, after.Spec.Volumes, func(v corev1.Volume) string { return v.Name }, replace)
	list(d, "/spec/initContainers", before.Spec.InitContainers, after.Spec.InitContainers, name, container)
	list(d, "/spec/containers", before.Spec.Containers, after.Spec.Containers, name, container)
	return d.ops, d.err
}

// differ collects operations until an error.
type differ struct {
	ops []jsonpatch.Operation
	err error
}

func (d *differ) add(op, path string, value any) {
	d.ops = append(d.ops, jsonpatch.NewOperation(op, path, value))
}

// annotation is the only one that Inject writes.
func (d *differ) annotation(before, after map[string]string) {
	const key = sondev1.AnnotationClaim
	switch {
	case before[key] == after[key]:
	case len(before) == 0:
		d.add("add", "/metadata/annotations", map[string]string{key: after[key]})
	default:
		d.add("add", "/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"), after[key])
	}
}

// maxEdits is how many elements of a list are removed, moved or replaced one by one. The API server copies the list for each such
// operation: 55,000 would take it 15 s. No Pod of a real workload needs more than a few.
const maxEdits = 16

// list compares two lists whose elements have a key, and the elements of the same key by element, which returns the number of elements
// that it replaces. A container may have several variables of one key. Over maxEdits it writes the whole list by one operation, which
// loses the fields that our types do not know.
func list[T any](d *differ, path string, before, after []T, key func(T) string, element func(d *differ, path string, before, after T) int) {
	switch {
	case len(after) == 0 && len(before) == 0:
	case len(after) == 0:
		d.add("remove", path, nil)
	case len(before) == 0:
		d.add("add", path, after)
	default:
		edits := &differ{}
		if elements(edits, path, before, after, key, element) {
			d.ops, d.err = append(d.ops, edits.ops...), cmp.Or(d.err, edits.err)
		} else {
			d.add("replace", path, after)
		}
	}
}

// elements writes the operations for single elements, and gives up with false when there are too many.
func elements[T any](d *differ, path string, before, after []T, key func(T) string, element func(d *differ, path string, before, after T) int) bool {
	wanted := map[string]bool{}
	for _, e := range after {
		wanted[key(e)] = true
	}
	have, edits := slices.Clone(before), 0
	remove := func(i int) {
		d.add("remove", path+"/"+strconv.Itoa(i), nil)
		have = slices.Delete(have, i, i+1)
		edits++
	}
	for i := len(before) - 1; i >= 0 && edits <= maxEdits; i-- { // from the end, so that indices stay valid
		if !wanted[key(before[i])] {
			remove(i)
		}
	}
	for i := 0; i < len(after) && edits <= maxEdits; i++ {
		e, at := after[i], path+"/"+strconv.Itoa(i)
		same := func(h T) bool { return key(h) == key(e) }
		if i < len(have) && same(have[i]) {
			edits += element(d, at, have[i], e)
			continue
		}
		if later := slices.IndexFunc(have[i:], same); later >= 0 { // it moves here
			remove(i + later)
		}
		d.add("add", at, e)
		have = slices.Insert(have, i, e)
	}
	for len(have) > len(after) && edits <= maxEdits {
		remove(len(have) - 1)
	}
	return edits <= maxEdits
}

func replace[T any](d *differ, path string, before, after T) int {
	if equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	d.add("replace", path, after)
	return 1
}

func container(d *differ, path string, before, after corev1.Container) int {
	list(d, path+"/env", before.Env, after.Env, func(e corev1.EnvVar) string { return e.Name }, replace)
	list(d, path+"/volumeMounts", before.VolumeMounts, after.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath }, replace)
	before.Env, before.VolumeMounts, after.Env, after.VolumeMounts = nil, nil, nil, nil
	if equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	d.fields(path, before, after)
	return 1
}

// fields compares the fields of a sidecar that was changed or replaced. It sets whole fields: the API server may leave out an empty
// parent that our types marshal.
func (d *differ) fields(path string, before, after corev1.Container) {
	from, to := d.marshal(before), d.marshal(after)
	for _, field := range slices.Sorted(maps.Keys(to)) {
		if !bytes.Equal(from[field], to[field]) {
			d.add("add", path+"/"+field, to[field])
		}
	}
	for _, field := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[field]; !ok {
			d.add("remove", path+"/"+field, nil)
		}
	}
}

func (d *differ) marshal(c corev1.Container) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	b, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		d.err = fmt.Errorf("marshal container %q: %w", c.Name, err)
	}
	return fields
}
