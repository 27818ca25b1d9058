// Package paging reads lists from the API server page by page. The manager's memory then holds one page at a time, however
// much users have written into their objects.
package paging

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size of a page, in objects. An object may have 1.5 MiB, so a page has at most 30 MiB.
const Size = 20

// Each lists the objects that opts select and calls visit with each page. All pages show the state of the first. newList
// makes an empty list, because decoding into a used one would mix both. live reads from the API server: a cache ignores
// pages.
func Each[L client.ObjectList](ctx context.Context, live client.Reader, newList func() L, visit func(L), opts ...client.ListOption) error {
	for next := ""; ; {
		page := newList()
		if err := live.List(ctx, page, append(slices.Clone(opts), client.Limit(Size), client.Continue(next))...); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
