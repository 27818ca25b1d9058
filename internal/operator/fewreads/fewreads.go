// Package fewreads bounds how many objects of tenants the manager reads from the API server at once, and what it decodes of each.
// A user may have written 1.5 MiB into each, and an object takes up to 24 times its size when it is decoded as a whole.
package fewreads

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader does not bound reads of single objects of the operator's namespace or of the cluster: no tenant writes these.
type reader struct {
	client.Reader
	own    string
	limits Limits
	places chan struct{}
}

// Limits of a reader.
type Limits struct {
	// Places is how many objects or pages are read at once.
	Places int
	// Bytes is the most that a Pod or a workload may have as JSON; zero leaves the bound to the API server.
	Bytes int64
	// Unbounded lifts the bound on what is decoded of one object. A controller that cannot read an object could not end what depends on it.
	Unbounded bool
}

// New returns a reader within limits. Other reads wait in the order of their calls. All users of one kind, such as all
// controllers, must share a reader. Of Pods, workloads, and metadata it reads the fields that the operator needs, if the configuration
// of live has the wrapper Cut.
func New(live client.Reader, operatorNamespace string, limits Limits) client.Reader {
	return &reader{Reader: live, own: operatorNamespace, limits: limits, places: make(chan struct{}, limits.Places)}
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
	return r.Reader.Get(r.cut(ctx, o), key, o, opts...)
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.leave()
	return r.Reader.List(r.cutList(ctx, list, opts), list, opts...)
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
