package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxReads is how many objects of tenants the webhooks read from the API server at once. A user may have written 1.5 MiB into one, and
// it takes some ten times that while it is decoded.
const maxReads = 4

// fewReads is a reader of maxReads objects of tenants at once. Others wait in the order of their requests, and an Intake bounds how
// many of these a namespace or user has.
type fewReads struct {
	client.Reader
	own    string // the operator's namespace: no tenant writes its objects
	places chan struct{}
}

// FewReads returns a reader for all webhooks together, which bounds the memory of their lookups.
func FewReads(live client.Reader, operatorNamespace string) client.Reader {
	return &fewReads{Reader: live, own: operatorNamespace, places: make(chan struct{}, maxReads)}
}

// Get implements client.Reader.
func (r *fewReads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Namespace == "" || key.Namespace == r.own {
		return r.Reader.Get(ctx, key, o, opts...)
	}
	select {
	case r.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.places }()
	return r.Reader.Get(ctx, key, o, opts...)
}
