package paging

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// NewInformer is the type of cache.Options.NewInformer.
type NewInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// Informers returns a NewInformer whose informers read a list in pages, and transform each page before they read the next.
// All of them together hold one page at a time. They list on API servers without streaming lists. Other servers send the
// list object by object, at the beginning of a watch. The bytes of a page are bounded only if the configuration has the wrapper Bound.
func Informers(next NewInformer) NewInformer {
	place := make(chan struct{}, 1)
	return func(from cache.ListerWatcher, o runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		l := &lister{ListerWatcherWithContext: cache.ToListerWatcherWithContext(from), place: place}
		return informer{next(l, o, resync, indexers), l}
	}
}

// informer shares its transformation with its lister.
type informer struct {
	cache.SharedIndexInformer
	lister *lister
}

// SetTransform implements cache.SharedInformer. The informer applies f again to what the lister has transformed, as to all
// objects that it replaces.
func (i informer) SetTransform(f cache.TransformFunc) error {
	if err := i.SharedIndexInformer.SetTransform(f); err != nil {
		return fmt.Errorf("set the transformation: %w", err)
	}
	i.lister.transform = f
	return nil
}

// lister reads lists in pages.
type lister struct {
	cache.ListerWatcherWithContext
	transform cache.TransformFunc
	place     chan struct{}
}

// List implements cache.ListerWatcher.
func (l *lister) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (l *lister) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWatcherWithContext. It returns the newest state: the API server ignores the size of
// a page if an older one suffices. All pages show the state of the first. If it has become too old for the API server, the
// error makes the informer list again.
func (l *lister) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	all := &internalversion.List{}
	err := pages(ctx, func(ctx context.Context, size int64, next string) (string, error) {
		select {
		case l.place <- struct{}{}:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		defer func() { <-l.place }()
		options.Limit, options.Continue = size, next
		page, err := l.ListerWatcherWithContext.ListWithContext(ctx, options)
		if err != nil {
			return "", err
		}
		return l.add(all, page)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// add appends a page, and returns the token that continues the list.
func (l *lister) add(all *internalversion.List, page runtime.Object) (string, error) {
	meta, err := apimeta.ListAccessor(page)
	if err != nil {
		return "", fmt.Errorf("read a page of a list: %w", err)
	}
	if all.ResourceVersion == "" {
		all.ResourceVersion = meta.GetResourceVersion()
	}
	return meta.GetContinue(), apimeta.EachListItemWithAlloc(page, func(o runtime.Object) error {
		if l.transform == nil {
			all.Items = append(all.Items, o)
			return nil
		}
		kept, err := l.transform(o)
		if err != nil {
			return fmt.Errorf("transform an object of a list: %w", err)
		}
		object, ok := kept.(runtime.Object)
		if !ok {
			return fmt.Errorf("an object of a list was transformed to %T, which is no object", kept)
		}
		all.Items = append(all.Items, object)
		return nil
	})
}
