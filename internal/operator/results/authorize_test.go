package results

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// mallorys is a copy of the hash of the ResultAccess mine, admitted for mallory.
func (w *world) mallorys(name, uid string, age time.Duration) *sondev1.ResultAccess {
	w.t.Helper()
	created := time.Now().Add(-age).Truncate(time.Second)
	return w.access(name, func(ra *sondev1.ResultAccess) {
		ra.UID, ra.CreationTimestamp = types.UID(uid), metav1.NewTime(created)
		a, err := stamp.Sign(testKey, "shop", stamp.KindResultAccess, ra.Spec, stamp.Claim{
			Requester: access.Requester{Username: "mallory"}, TargetNamespaceUID: "uid-shop", IssuedAt: created,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		ra.Annotations = a
	})
}

// TestACopiedHashIsUseless: a user who copies a hash takes over neither the name in the record nor the places of the
// token's holder.
func TestACopiedHashIsUseless(t *testing.T) {
	for name, tc := range map[string]struct {
		copies  func(w *world) []*sondev1.ResultAccess
		headers map[string]string
	}{
		"never admitted": {copies: func(w *world) []*sondev1.ResultAccess {
			return []*sondev1.ResultAccess{w.access("a-copy", func(ra *sondev1.ResultAccess) { ra.Annotations = map[string]string{} })}
		}},
		"forty, never admitted": {copies: func(w *world) []*sondev1.ResultAccess {
			var copies []*sondev1.ResultAccess
			for i := range 40 {
				copies = append(copies, w.access(fmt.Sprintf("a-copy-%d", i), func(ra *sondev1.ResultAccess) { ra.Annotations = map[string]string{} }))
			}
			return copies
		}},
		"younger": {copies: func(w *world) []*sondev1.ResultAccess {
			return []*sondev1.ResultAccess{w.mallorys("a-copy", "0", -2*time.Second)}
		}},
		"as old, and the client names its own": {
			headers: map[string]string{AccessHeader: "mine"},
			copies: func(w *world) []*sondev1.ResultAccess {
				return []*sondev1.ResultAccess{w.mallorys("a-copy", "0", 0), w.mallorys("b-copy", "1", 10*time.Second)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, ra := range tc.copies(w) {
				w.create(ra)
			}
			for range streamsPerUser {
				if _, _, err := w.handler.downloads.take(t.Context(), "elsewhere", "mallory"); err != nil {
					t.Fatal(err)
				}
			}
			if resp := w.get(webFile, tc.headers); resp.code != http.StatusOK {
				t.Errorf("got %d", resp.code)
			}
			if note := <-w.events.Events; !strings.Contains(note, "alice read") {
				t.Errorf("event %q, want alice's", note)
			}
		})
	}
}

// TestAnotherAccessIsNotTheTokens: naming a ResultAccess helps no one without its token.
func TestAnotherAccessIsNotTheTokens(t *testing.T) {
	w := newWorld(t)
	w.fails(w.get(webFile, map[string]string{AccessHeader: "other"}), http.StatusUnauthorized, "gives no access to")
	w.fails(w.get(webFile, map[string]string{AccessHeader: "mine", TokenHeader: strings.Repeat("a", 32)}), http.StatusUnauthorized, "gives no access to")
}

// TestARequestListsNothing: the price of a request does not depend on the number of ResultAccesses, nor on the captures of
// others. An invalid token is not worth a question to the API server, nor a place.
func TestARequestListsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		token    string
		wantCode int
	}{
		"valid":   {token, http.StatusOK},
		"invalid": {strings.Repeat("a", 32), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked := 0
			cache := w.handler.Cache
			w.handler.Cache = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if o := (&client.ListOptions{}).ApplyOptions(opts); o.FieldSelector == nil || o.FieldSelector.Empty() {
						t.Errorf("lists all of a %T", l)
					}
					return cache.List(ctx, l, opts...)
				},
			})
			w.handler.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					asked++
					return c.Get(ctx, key, o, opts...)
				},
				List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
					t.Errorf("lists a %T at the API server", l)
					return nil
				},
			})
			for range downloadsPerUser {
				if _, _, err := w.handler.downloads.take(t.Context(), "shop", "alice"); err != nil {
					t.Fatal(err)
				}
			}
			if tc.wantCode == http.StatusOK {
				w.fails(w.get(webFile, nil), http.StatusTooManyRequests, "this user has 16 downloads")
				if asked != 0 {
					t.Errorf("a request without a place asked the API server %d times", asked)
				}
				clear(w.handler.downloads.held)
			}
			if resp := w.get(webFile, map[string]string{TokenHeader: tc.token}); resp.code != tc.wantCode {
				t.Errorf("got %d, want %d", resp.code, tc.wantCode)
			}
			if tc.wantCode != http.StatusOK && asked != 0 {
				t.Errorf("an invalid token asked the API server %d times", asked)
			}
		})
	}
}
