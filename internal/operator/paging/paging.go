// Package paging reads lists from the API server page by page. The manager's memory then holds one page at a time, however
// much users have written into their objects.
package paging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size of the first page, in objects. 64 ordinary Pods have about 1 MiB.
const Size = 64

// MaxBytes of a page. An object may have 1.5 MiB, and takes several times its size while it is decoded. So a larger page is not
// decoded: it is read again in smaller ones. A page of one object has no bound but the API server's.
const MaxBytes = 2 << 20

// shrink divides the size of a page that is too large, and growth multiplies the size after a page that is not: a few large
// objects do not let a long list come in small pages.
const (
	shrink = 4
	growth = 2
)

// Each lists the objects that opts select and calls visit with each page. All pages show the state of the first. newList
// makes an empty list, because decoding into a used one would mix both. live reads from the API server: a cache ignores
// pages. The bytes of a page are bounded only if live's configuration has the wrapper Bound.
func Each[L client.ObjectList](ctx context.Context, live client.Reader, newList func() L, visit func(L), opts ...client.ListOption) error {
	return pages(ctx, func(ctx context.Context, size int64, next string) (string, error) {
		page := newList()
		if err := live.List(ctx, page, append(slices.Clone(opts), client.Limit(size), client.Continue(next))...); err != nil {
			return "", err
		}
		visit(page)
		return page.GetContinue(), nil
	})
}

// pages calls read with the size of each page and the token that continues the list, until read returns no token.
// After pages that were too large, the size grows again.
func pages(ctx context.Context, read func(ctx context.Context, size int64, next string) (string, error)) error {
	size := int64(Size)
	for next := ""; ; {
		following, err := read(bounded(ctx, size), size, next)
		switch {
		case errors.Is(err, errTooLarge):
			size = max(size/shrink, 1)
		case err != nil:
			return err
		case following == "":
			return nil
		default:
			next, size = following, min(growth*size, Size)
		}
	}
}

var errTooLarge = fmt.Errorf("the page has more than %d bytes", MaxBytes)

// boundedKey is the key of contexts whose answers are bounded.
type boundedKey struct{}

func bounded(ctx context.Context, size int64) context.Context {
	if size == 1 {
		return ctx
	}
	return context.WithValue(ctx, boundedKey{}, true)
}

// Bound wraps the transport of a client (rest.Config.Wrap), and refuses pages of more than MaxBytes before they are decoded.
func Bound(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil || req.Context().Value(boundedKey{}) == nil {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read a page: %w", err)
	case len(body) > MaxBytes:
		return nil, errTooLarge
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
