package memapi

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Informer is a manager's cache of one kind. It has applied the API server's log up to index At.
type Informer struct {
	Kind string
	At   int
}

// Filter says what a manager caches of an object. It returns nil for an object that is not cached.
type Filter func(client.Object) client.Object

// View is the cache of one manager. Each informer may lag by itself.
type View struct {
	Server    *Server
	Informers []*Informer
	Objects   Objects
	Filter    Filter
	Values    FieldValues
}

// NewView returns a cache that was filled from a server that lags by up to lag changes.
func NewView(s *Server, kinds []string, filter Filter, values FieldValues, lag int) *View {
	v := &View{Server: s, Objects: Objects{}, Filter: filter, Values: values}
	for _, kind := range kinds {
		i := &Informer{Kind: kind}
		v.Informers = append(v.Informers, i)
		for i.At < len(s.Log)-lag {
			v.apply(i)
		}
	}
	return v
}

// apply reads the next change of the log. It stores and returns the change if the informer caches the object.
func (v *View) apply(i *Informer) (Change, bool) {
	c := v.Server.Log[i.At]
	i.At++
	if c.Key.Kind != i.Kind {
		return Change{}, false
	}
	return v.Store(c)
}

// Store puts the new state of an object into the cache, and returns the event that the cache sends.
func (v *View) Store(c Change) (Change, bool) {
	if c.Now != nil {
		c.Now = v.Filter(c.Now)
	}
	c.Old = v.Objects[c.Key]
	if c.Now == nil {
		delete(v.Objects, c.Key)
		return c, c.Old != nil
	}
	v.Objects[c.Key] = c.Now
	return c, true
}

// Next applies changes up to the next one that the informer caches, and returns that; false if there is none.
func (v *View) Next(i *Informer) (Change, bool) {
	for i.At < len(v.Server.Log) {
		if c, ok := v.apply(i); ok {
			return c, true
		}
	}
	return Change{}, false
}

// Relist does what an informer does when its watch was interrupted for too long: it goes from one list to the next. It returns
// the changes between the two, and the indexes of those that it skipped. An object that came and went is in no change.
func (v *View) Relist(i *Informer) (changes []Change, skipped []int) {
	listed, keys := Objects{}, []Key{}
	for ; i.At < len(v.Server.Log); i.At++ {
		if c := v.Server.Log[i.At]; c.Key.Kind == i.Kind {
			skipped = append(skipped, i.At)
			listed[c.Key] = c.Now
			if !slices.Contains(keys, c.Key) {
				keys = append(keys, c.Key)
			}
		}
	}
	for _, key := range keys {
		changes = append(changes, Change{Key: key, Now: listed[key], At: v.Server.Clock.Now()})
	}
	return changes, skipped
}

// Informer returns the informer of a kind.
func (v *View) Informer(kind string) *Informer {
	return v.Informers[slices.IndexFunc(v.Informers, func(i *Informer) bool { return i.Kind == kind })]
}

// Behind reports whether the informer has not applied a change from before this time.
func (v *View) Behind(i *Informer, before time.Time) bool {
	return i.At < len(v.Server.Log) && !v.Server.Log[i.At].At.After(before)
}

// Mapped does what handler.EnqueueRequestsFromMapFunc does.
func Mapped(c Change, p predicate.Predicate, wake func(client.Object) []reconcile.Request) []reconcile.Request {
	switch {
	case c.Old == nil && c.Now == nil:
		return nil
	case c.Old == nil:
		if p.Create(event.CreateEvent{Object: c.Now}) {
			return wake(c.Now)
		}
	case c.Now == nil:
		if p.Delete(event.DeleteEvent{Object: c.Old}) {
			return wake(c.Old)
		}
	default:
		if p.Update(event.UpdateEvent{ObjectOld: c.Old, ObjectNew: c.Now}) {
			return append(wake(c.Old), wake(c.Now)...)
		}
	}
	return nil
}

// Reader reads a View without faults, as event handlers do.
type Reader struct{ *View }

// Get implements client.Reader.
func (r Reader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return r.Objects.Get(r.Server.Scheme, key, o)
}

// List implements client.Reader.
func (r Reader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.Objects.List(r.Server.Scheme, r.Values, list, opts...)
}
