// Package fewreads bounds how many objects of tenants the manager reads from the API server at once. A user may have written
// 1.5 MiB into each, and an object takes several times its size while it is decoded.
package fewreads

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader does not bound reads of single objects of the operator's namespace or of the cluster: no tenant writes these.
type reader struct {
	client.Reader
	own    string
	places chan struct{}
}

// New returns a reader of a number of objects or pages at once. Other reads wait in the order of their calls. All users of one
// kind, such as all controllers, must share a reader.
func New(live client.Reader, operatorNamespace string, places int) client.Reader {
	return &reader{Reader: live, own: operatorNamespace, places: make(chan struct{}, places)}
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Namespace == "" || key.Namespace == r.own {
		return r.Reader.Get(ctx, key, o, opts...)
	}
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.leave()
	return r.Reader.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.leave()
	return r.Reader.List(ctx, list, opts...)
}

func (r *reader) take(ctx context.Context) error {
	select {
	case r.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reader) leave() { <-r.places }
