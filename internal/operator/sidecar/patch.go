package sidecar

import (
	"bytes"
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

// list compares two lists whose elements have a key, and the elements of the same key by element. A container may have several
// variables of one key.
func list[T any](d *differ, path string, before, after []T, key func(T) string, element func(d *differ, path string, before, after T)) {
	switch {
	case len(after) == 0 && len(before) == 0:
		return
	case len(after) == 0:
		d.add("remove", path, nil)
		return
	case len(before) == 0:
		d.add("add", path, after)
		return
	}
	wanted := map[string]bool{}
	for _, e := range after {
		wanted[key(e)] = true
	}
	have := slices.Clone(before)
	remove := func(i int) {
		d.add("remove", path+"/"+strconv.Itoa(i), nil)
		have = slices.Delete(have, i, i+1)
	}
	for i, e := range slices.Backward(before) { // from the end, so that indices stay valid
		if !wanted[key(e)] {
			remove(i)
		}
	}
	for i, e := range after {
		at := path + "/" + strconv.Itoa(i)
		same := func(h T) bool { return key(h) == key(e) }
		if i < len(have) && same(have[i]) {
			element(d, at, have[i], e)
			continue
		}
		if later := slices.IndexFunc(have[i:], same); later >= 0 { // it moves here
			remove(i + later)
		}
		d.add("add", at, e)
		have = slices.Insert(have, i, e)
	}
	for len(have) > len(after) {
		remove(len(have) - 1)
	}
}

func replace[T any](d *differ, path string, before, after T) {
	if !equality.Semantic.DeepEqual(before, after) {
		d.add("replace", path, after)
	}
}

func container(d *differ, path string, before, after corev1.Container) {
	list(d, path+"/env", before.Env, after.Env, func(e corev1.EnvVar) string { return e.Name }, replace)
	list(d, path+"/volumeMounts", before.VolumeMounts, after.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath }, replace)
	before.Env, before.VolumeMounts, after.Env, after.VolumeMounts = nil, nil, nil, nil
	if !equality.Semantic.DeepEqual(before, after) {
		d.fields(path, before, after)
	}
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
