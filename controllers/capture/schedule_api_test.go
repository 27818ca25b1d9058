package capture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// objectKey names an object of the model's API server.
type objectKey struct{ kind, namespace, name string }

func (k objectKey) String() string {
	if k.namespace == "" {
		return k.kind + " " + k.name
	}
	return k.kind + " " + k.namespace + "/" + k.name
}

func (k objectKey) compare(o objectKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// change is one event of the API server's watch. old is nil for a new object, now for a deleted one.
type change struct {
	key      objectKey
	old, now client.Object
	at       time.Time
}

// objectSet holds the objects that a reader sees, from the API server or from a cache.
type objectSet map[objectKey]client.Object

// memoryAPI is an in-memory API server with UIDs, versions, preconditions and the status subresource. It logs all changes,
// so that caches can lag. The fake client of controller-runtime has no preconditions by UID and no clock of the schedule, and
// is too slow for a thousand schedules.
type memoryAPI struct {
	scheme  *runtime.Scheme
	clock   clock.PassiveClock
	objects objectSet
	log     []change
	uids    int
	version int
}

func newMemoryAPI(scheme *runtime.Scheme, c clock.PassiveClock) *memoryAPI {
	return &memoryAPI{scheme: scheme, clock: c, objects: objectSet{}}
}

func (a *memoryAPI) keyOf(o client.Object) objectKey { return keyOf(a.scheme, o) }

func keyOf(scheme *runtime.Scheme, o client.Object) objectKey {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if _, partial := o.(*metav1.PartialObjectMetadata); !partial {
		gvk, err := apiutil.GVKForObject(o, scheme)
		if err != nil {
			panic(err) // add the kind to testScheme
		}
		kind = gvk.Kind
	}
	return objectKey{kind, o.GetNamespace(), o.GetName()}
}

func resource(kind string) schema.GroupResource { return schema.GroupResource{Resource: kind} }

func (a *memoryAPI) put(key objectKey, o client.Object) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.log = append(a.log, change{key, a.objects[key], o, a.clock.Now()})
	a.objects[key] = o
}

// create stores a copy and writes back what the server adds.
func (a *memoryAPI) create(o client.Object) error {
	key := a.keyOf(o)
	if a.objects[key] != nil {
		return apierrors.NewAlreadyExists(resource(key.kind), key.name)
	}
	if ns := a.objects[objectKey{"Namespace", "", key.namespace}]; key.namespace != "" && ns == nil {
		return apierrors.NewNotFound(resource("Namespace"), key.namespace)
	}
	a.uids++
	o.SetUID(types.UID(fmt.Sprintf("%08x-1111-4222-8333-444455556666", a.uids)))
	o.SetCreationTimestamp(metav1.NewTime(a.clock.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	o.SetResourceVersion(strconv.Itoa(a.version + 1))
	a.put(key, o.DeepCopyObject().(client.Object))
	return nil
}

// delete removes an object at once, if it has the UID of the precondition.
func (a *memoryAPI) delete(key objectKey, uid *types.UID) error {
	there := a.objects[key]
	switch {
	case there == nil:
		return apierrors.NewNotFound(resource(key.kind), key.name)
	case uid != nil && there.GetUID() != *uid:
		return apierrors.NewConflict(resource(key.kind), key.name, fmt.Errorf("the UID in the precondition is %s, the object's is %s", *uid, there.GetUID()))
	}
	delete(a.objects, key)
	a.log = append(a.log, change{key, there, nil, a.clock.Now()})
	return nil
}

// patchStatus applies a merge patch or a JSON patch to the status subresource.
func (a *memoryAPI) patchStatus(o client.Object, p client.Patch) error {
	key := a.keyOf(o)
	there, ok := a.objects[key].(*sondev1.PacketCapture)
	if !ok {
		return apierrors.NewNotFound(resource(key.kind), key.name)
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	merged, err := patched(there, p.Type(), data)
	if err != nil {
		return err
	}
	var patched sondev1.PacketCapture
	if err := json.Unmarshal(merged, &patched); err != nil {
		return err
	}
	next := there.DeepCopy()
	next.Status = patched.Status
	if !equality.Semantic.DeepEqual(next.Status, there.Status) {
		a.put(key, next)
	}
	copyObject(next, o)
	return nil
}

// patched returns an object as JSON after a patch. A merge patch may hold the resourceVersion that the object must have.
func patched(there client.Object, form types.PatchType, data []byte) ([]byte, error) {
	before, err := json.Marshal(there)
	if err != nil {
		return nil, err
	}
	if form == types.JSONPatchType {
		operations, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, err
		}
		after, err := operations.Apply(before)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return after, nil
	}
	var lock metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, err
	}
	if v := lock.ResourceVersion; v != "" && v != there.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource("PacketCapture"), there.GetName(), fmt.Errorf("version %s, not %s", there.GetResourceVersion(), v))
	}
	return jsonpatch.MergePatch(before, data)
}

// edit changes an object on behalf of another actor in the cluster. It does nothing if the object is gone.
func edit[T client.Object](a *memoryAPI, key objectKey, f func(T)) {
	there, ok := a.objects[key].(T)
	if !ok {
		return
	}
	next := there.DeepCopyObject().(T)
	f(next)
	if !equality.Semantic.DeepEqual(client.Object(next), client.Object(there)) {
		a.put(key, next)
	}
}

// of returns all objects of a kind, sorted by name.
func of[T client.Object](objects objectSet, kind string) []T {
	var keys []objectKey
	for k := range objects {
		if k.kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, objectKey.compare)
	found := make([]T, 0, len(keys))
	for _, k := range keys {
		if o, ok := objects[k].(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// get reads one object into o, whole or its metadata.
func (s objectSet) get(scheme *runtime.Scheme, name client.ObjectKey, o client.Object) error {
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	key := keyOf(scheme, o)
	there := s[key]
	if there == nil {
		return apierrors.NewNotFound(resource(key.kind), key.name)
	}
	copyObject(there, o)
	return nil
}

// copyObject copies an object into one of its type, or its metadata.
func copyObject(from, to client.Object) {
	if partial, ok := to.(*metav1.PartialObjectMetadata); ok {
		gvk := partial.GroupVersionKind()
		*partial = *metadata(from)
		partial.SetGroupVersionKind(gvk)
		return
	}
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

// metadata returns the metadata of an object, as a watch of metadata sends it.
func metadata(o client.Object) *metav1.PartialObjectMetadata {
	if partial, ok := o.(*metav1.PartialObjectMetadata); ok {
		return partial.DeepCopy()
	}
	m := reflect.ValueOf(o.DeepCopyObject()).Elem().FieldByName("ObjectMeta").Interface().(metav1.ObjectMeta)
	return &metav1.PartialObjectMetadata{ObjectMeta: m}
}

// list reads a list of objects, whole or their metadata.
func (s objectSet) list(scheme *runtime.Scheme, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		return err
	}
	kind := gvk.Kind[:len(gvk.Kind)-len("List")]
	o := (&client.ListOptions{}).ApplyOptions(opts)
	partial, _ := list.(*metav1.PartialObjectMetadataList)
	var items []runtime.Object
	for _, there := range of[client.Object](s, kind) {
		if o.Namespace != "" && there.GetNamespace() != o.Namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(there.GetLabels())) || !selected(there, o.FieldSelector) {
			continue
		}
		if partial != nil {
			partial.Items = append(partial.Items, *metadata(there))
			continue
		}
		items = append(items, there.DeepCopyObject())
	}
	if partial != nil {
		return nil
	}
	return apimeta.SetList(list, items)
}

// selected applies the field selectors of the cache's indexes and of Events.
func selected(o client.Object, selector fields.Selector) bool {
	if selector == nil {
		return true
	}
	for _, r := range selector.Requirements() {
		if !slices.Contains(field(o, r.Field), r.Value) {
			return false
		}
	}
	return true
}

func field(o client.Object, name string) []string {
	if e, ok := o.(*corev1.Event); ok {
		return []string{map[string]string{eventObjectUID: string(e.InvolvedObject.UID), eventReason: e.Reason}[name]}
	}
	for _, i := range target.Indexes {
		if i.Field == name {
			if values := i.Extract(o); values != nil {
				return values
			}
		}
	}
	return nil
}
