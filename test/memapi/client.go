package memapi

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client is a manager's client: reads come from its cache, or live.
type Client struct {
	client.Client // nil: calls that the manager must not make panic

	Requests *Requests
	View     *View
	// Live reads are requests to the API server.
	Live bool
	// Stale makes a mutant whose live reads come from the cache.
	Stale bool
}

// Scheme implements client.Client.
func (c Client) Scheme() *runtime.Scheme { return c.View.Server.Scheme }

// GroupVersionKindFor implements client.Client.
func (c Client) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.Scheme())
}

func (c Client) objects() Objects {
	if c.Live && !c.Stale {
		return c.View.Server.Objects
	}
	return c.View.Objects
}

// Get implements client.Reader.
func (c Client) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return c.GetFrom(c.objects(), name, o)
}

// GetFrom reads from other objects than those of the Client.
func (c Client) GetFrom(objects Objects, name client.ObjectKey, o client.Object) error {
	read := func() error { return objects.Get(c.Scheme(), name, o) }
	if !c.Live {
		return c.cached(read)
	}
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	return c.Requests.Call("get", KeyOf(c.Scheme(), o), false, read)
}

// List implements client.Reader.
func (c Client) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	read := func() error { return c.objects().List(c.Scheme(), c.View.Values, list, opts...) }
	if !c.Live {
		return c.cached(read)
	}
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return err
	}
	return c.Requests.Call("list", Key{Kind: gvk.Kind}, false, read)
}

func (c Client) cached(read func() error) error {
	if c.Requests.Dead {
		return ErrDead
	}
	return read()
}

// Create implements client.Writer.
func (c Client) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.Requests.Call("create", KeyOf(c.Scheme(), o), true, func() error { return c.View.Server.Create(o) })
}

// Delete implements client.Writer.
func (c Client) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	var uid *types.UID
	if options.Preconditions != nil {
		uid = options.Preconditions.UID
	}
	key := KeyOf(c.Scheme(), o)
	return c.Requests.Call("delete", key, true, func() error {
		there := c.View.Server.Objects[key]
		err := c.View.Server.Delete(key, uid)
		if err == nil && c.Requests.Deleted != nil {
			c.Requests.Deleted(there)
		}
		return err
	})
}

// Status implements client.Client.
func (c Client) Status() client.SubResourceWriter { return statusWriter{c: c} }

type statusWriter struct {
	client.SubResourceWriter

	c Client
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.c.Requests.Call("patch status of", KeyOf(w.c.Scheme(), o), true, func() error { return w.c.View.Server.PatchStatus(o, p) })
}

// Mutant replaces calls of a client, to break a manager on purpose. A nil function keeps the call.
type Mutant struct {
	client.Client

	OnGet    func(context.Context, client.Client, client.ObjectKey, client.Object) error
	OnList   func(context.Context, client.Client, client.ObjectList, ...client.ListOption) error
	OnDelete func(context.Context, client.Client, client.Object) error
	OnPatch  func(client.Object, client.Patch) client.Patch
}

// Get implements client.Reader.
func (m Mutant) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if m.OnGet != nil {
		return m.OnGet(ctx, m.Client, key, o)
	}
	return m.Client.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (m Mutant) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if m.OnList != nil {
		return m.OnList(ctx, m.Client, list, opts...)
	}
	return m.Client.List(ctx, list, opts...)
}

// Delete implements client.Writer.
func (m Mutant) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if m.OnDelete != nil {
		return m.OnDelete(ctx, m.Client, o)
	}
	return m.Client.Delete(ctx, o, opts...)
}

// Status implements client.Client.
func (m Mutant) Status() client.SubResourceWriter {
	return mutantStatus{m.Client.Status(), m.OnPatch}
}

type mutantStatus struct {
	client.SubResourceWriter

	onPatch func(client.Object, client.Patch) client.Patch
}

// Patch implements client.SubResourceWriter.
func (w mutantStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if w.onPatch != nil {
		p = w.onPatch(o, p)
	}
	return w.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// WithoutLock is an OnPatch that returns the same patch for any version of the object.
func WithoutLock(o client.Object, p client.Patch) client.Patch {
	var whole map[string]json.RawMessage
	data, err := p.Data(o)
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err != nil {
		return p
	}
	delete(whole, "metadata")
	if data, err = json.Marshal(whole); err != nil {
		return p
	}
	return client.RawPatch(types.MergePatchType, data)
}
