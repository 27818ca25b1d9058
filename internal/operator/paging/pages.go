// Package pages reads lists from the API server in parts, so that what users put into their objects is not in
// memory all at once.
package paging

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size of a page. An object may have 1.5 MiB, so that a page has 30 MiB at most.
const Size = 20

// Each lists what opts select and visits page by page; all pages are of the state of the first. fresh makes an
// empty list: decoding into one that was used would mix both. r must read from the API server, caches know no pages.
func Each[L client.ObjectList](ctx context.Context, r client.Reader, fresh func() L, visit func(L), opts ...client.ListOption) error {
	for next := ""; ; {
		page := fresh()
		if err := r.List(ctx, page, append(slices.Clone(opts), client.Limit(Size), client.Continue(next))...); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
