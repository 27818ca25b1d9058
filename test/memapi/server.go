// Package memapi is an in-memory API server with lagging caches and faults, for random schedules of controllers. It has UIDs,
// versions, preconditions, finalizers and the status subresource. Nothing in it runs concurrently, so that a seed repeats its
// schedule. The fake client of controller-runtime has no preconditions by UID and no clock of the schedule, and is too slow for a
// thousand schedules.
package memapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// Key names an object of the API server.
type Key struct{ Kind, Namespace, Name string }

// KeyFor returns the Key of a kind, a namespace and a name. Objects of the cluster have no namespace.
func KeyFor(kind, namespace, name string) Key {
	return Key{Kind: kind, Namespace: namespace, Name: name}
}

// String implements fmt.Stringer.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Change is one event of the API server's watch. Old is nil for a new object, Now for a deleted one.
type Change struct {
	Key      Key
	Old, Now client.Object
	At       time.Time
}

// Server is the API server. It logs all changes, so that caches can lag. Callers read Objects and Log, and write with the methods
// and with Edit.
type Server struct {
	Scheme  *runtime.Scheme
	Clock   clock.PassiveClock
	Objects Objects
	Log     []Change
	// Version counts the writes.
	Version int
	// Admit may change an object that anyone creates, and returns an error for one that is refused. It may be nil.
	Admit func(client.Object) error

	uids int
}

// NewServer returns an empty API server.
func NewServer(scheme *runtime.Scheme, c clock.PassiveClock) *Server {
	return &Server{Scheme: scheme, Clock: c, Objects: Objects{}}
}

// KeyOf returns the Key of an object.
func (s *Server) KeyOf(o client.Object) Key { return KeyOf(s.Scheme, o) }

// KeyOf returns the Key of an object whose type the scheme has.
func KeyOf(scheme *runtime.Scheme, o client.Object) Key {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if _, partial := o.(*metav1.PartialObjectMetadata); !partial {
		gvk, err := apiutil.GVKForObject(o, scheme)
		if err != nil {
			panic(err) // add the kind to the scheme of the test
		}
		kind = gvk.Kind
	}
	return Key{kind, o.GetNamespace(), o.GetName()}
}

// Resource names a kind in an error.
func Resource(kind string) schema.GroupResource { return schema.GroupResource{Resource: kind} }

func (s *Server) put(key Key, o client.Object) {
	s.Version++
	o.SetResourceVersion(strconv.Itoa(s.Version))
	s.Log = append(s.Log, Change{key, s.Objects[key], o, s.Clock.Now()})
	s.Objects[key] = o
}

// Create stores a copy and writes back what the server adds.
func (s *Server) Create(o client.Object) error {
	key := s.KeyOf(o)
	if s.Objects[key] != nil {
		return apierrors.NewAlreadyExists(Resource(key.Kind), key.Name)
	}
	if ns := s.Objects[KeyFor("Namespace", "", key.Namespace)]; key.Namespace != "" && ns == nil {
		return apierrors.NewNotFound(Resource("Namespace"), key.Namespace)
	}
	if s.Admit != nil {
		if err := s.Admit(o); err != nil {
			return err
		}
	}
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("%08x-1111-4222-8333-444455556666", s.uids)))
	o.SetCreationTimestamp(metav1.NewTime(s.Clock.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	o.SetResourceVersion(strconv.Itoa(s.Version + 1))
	s.put(key, o.DeepCopyObject().(client.Object))
	return nil
}

// Delete removes an object, if it has the UID of the precondition. One with finalizers stays, with a deletionTimestamp.
func (s *Server) Delete(key Key, uid *types.UID) error {
	there := s.Objects[key]
	switch {
	case there == nil:
		return apierrors.NewNotFound(Resource(key.Kind), key.Name)
	case uid != nil && there.GetUID() != *uid:
		return apierrors.NewConflict(Resource(key.Kind), key.Name, fmt.Errorf("the UID in the precondition is %s, the object's is %s", *uid, there.GetUID()))
	case len(there.GetFinalizers()) > 0:
		Edit(s, key, s.Terminate)
		return nil
	}
	s.Remove(key)
	return nil
}

// Terminate sets the deletionTimestamp of an object that has none.
func (s *Server) Terminate(o client.Object) {
	if o.GetDeletionTimestamp().IsZero() {
		o.SetDeletionTimestamp(new(metav1.NewTime(s.Clock.Now().Truncate(time.Second))))
	}
}

// Remove removes an object whatever finalizers it has.
func (s *Server) Remove(key Key) {
	s.Log = append(s.Log, Change{key, s.Objects[key], nil, s.Clock.Now()})
	delete(s.Objects, key)
}

// PatchStatus applies a merge patch or a JSON patch to the status subresource.
func (s *Server) PatchStatus(o client.Object, p client.Patch) error {
	key := s.KeyOf(o)
	there := s.Objects[key]
	if there == nil {
		return apierrors.NewNotFound(Resource(key.Kind), key.Name)
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	merged, err := patched(key, there, p.Type(), data)
	if err != nil {
		return err
	}
	read := reflect.New(reflect.TypeOf(there).Elem())
	if err := json.Unmarshal(merged, read.Interface()); err != nil {
		return err
	}
	next := there.DeepCopyObject().(client.Object)
	status := reflect.ValueOf(next).Elem().FieldByName("Status")
	status.Set(read.Elem().FieldByName("Status"))
	if !equality.Semantic.DeepEqual(status.Interface(), reflect.ValueOf(there).Elem().FieldByName("Status").Interface()) {
		s.put(key, next)
	}
	copyObject(next, o)
	return nil
}

// patched returns an object as JSON after a patch. A merge patch may hold the resourceVersion that the object must have.
func patched(key Key, there client.Object, form types.PatchType, data []byte) ([]byte, error) {
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
		return nil, apierrors.NewConflict(Resource(key.Kind), there.GetName(), fmt.Errorf("version %s, not %s", there.GetResourceVersion(), v))
	}
	return jsonpatch.MergePatch(before, data)
}

// Edit changes an object on behalf of another actor in the cluster. It does nothing if the object is gone. It removes an object
// that is being deleted and has no finalizer any more.
func Edit[T client.Object](s *Server, key Key, f func(T)) {
	there, ok := s.Objects[key].(T)
	if !ok {
		return
	}
	next := there.DeepCopyObject().(T)
	f(next)
	if len(there.GetFinalizers()) > 0 && len(next.GetFinalizers()) == 0 && !next.GetDeletionTimestamp().IsZero() {
		s.Remove(key)
		return
	}
	if !equality.Semantic.DeepEqual(client.Object(next), client.Object(there)) {
		s.put(key, next)
	}
}
