package sidecar

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// reviews answers the manager's reviews.
type reviews struct {
	refused string // verb and resource of the right that the manager lacks
	denied  bool
	err     error
	asked   []string
}

func (r *reviews) client() client.Client {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			a := review.Spec.ResourceAttributes
			r.asked = append(r.asked, a.Namespace+": "+a.Verb+" "+a.Resource+"."+a.Group)
			review.Status.Allowed, review.Status.Denied = a.Verb+" "+a.Resource != r.refused, r.denied
			return r.err
		},
	}).Build()
}

// never is a cache without a RoleBinding.
func never(context.Context, string) bool { return false }

// TestOwnRightsByTheRoleBinding: in a namespace with the RoleBinding of "kubectl sonde fluentpvc allow", no review is sent. When it is
// deleted, the next Pod is reviewed, and the answer from before is not kept.
func TestOwnRightsByTheRoleBinding(t *testing.T) {
	r, granted := &reviews{refused: "create persistentvolumeclaims"}, map[string]bool{"shop": true}
	own := NewOwnRights(func(_ context.Context, namespace string) bool { return granted[namespace] }, r.client(), webhooktest.Clock())
	for _, tc := range []struct {
		namespace string
		want      bool
		wantAsked int
	}{{"shop", true, 0}, {"shop", true, 0}, {"bank", false, 1}} {
		if got, err := own.Allowed(t.Context(), tc.namespace); err != nil || got != tc.want || len(r.asked) != tc.wantAsked {
			t.Fatalf("allowed in %s: %t, %v, want %t; %d reviews, want %d: %q", tc.namespace, got, err, tc.want, len(r.asked), tc.wantAsked, r.asked)
		}
	}
	delete(granted, "shop")
	if got, err := own.Allowed(t.Context(), "shop"); err != nil || got || len(r.asked) != 2 {
		t.Errorf("without the RoleBinding: %t, %v after %q, want no, after a review", got, err, r.asked)
	}
}

func TestOwnRights(t *testing.T) {
	tests := map[string]struct {
		reviews reviews
		want    bool
		wantErr bool
	}{
		"all":             {want: true},
		"no create":       {reviews: reviews{refused: "create persistentvolumeclaims"}},
		"no delete":       {reviews: reviews{refused: "delete persistentvolumeclaims"}},
		"no Jobs":         {reviews: reviews{refused: "create jobs"}},
		"no deleted Jobs": {reviews: reviews{refused: "delete jobs"}},
		"denied":          {reviews: reviews{denied: true}},
		"no answer":       {reviews: reviews{err: errors.New("no connection")}, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewOwnRights(never, tc.reviews.client(), webhooktest.Clock()).Allowed(t.Context(), "shop")
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("allowed: %t, %v", got, err)
			}
		})
	}
}

// TestOwnRightsAreKept checks that the answer yes is kept for rightsTTL, for its namespace, and the answer no is not.
func TestOwnRightsAreKept(t *testing.T) {
	clk, r := webhooktest.Clock(), &reviews{refused: "create jobs"}
	own := NewOwnRights(never, r.client(), clk)
	allowed := func(namespace string, want bool) {
		t.Helper()
		if got, err := own.Allowed(t.Context(), namespace); err != nil || got != want {
			t.Fatalf("allowed in %s: %t, %v", namespace, got, err)
		}
	}
	allowed("shop", false)
	r.refused, r.asked = "", nil
	allowed("shop", true)
	want := []string{"shop: create persistentvolumeclaims.", "shop: delete persistentvolumeclaims.", "shop: create jobs.batch", "shop: delete jobs.batch"}
	if diff := cmp.Diff(want, r.asked); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
	r.refused = "create jobs"
	allowed("bank", false)
	clk.SetTime(clk.Now().Add(rightsTTL - time.Second))
	allowed("shop", true)
	clk.SetTime(clk.Now().Add(time.Second))
	allowed("shop", false)
}

// TestOwnRightsAreAskedOnce checks that Pods which come together cost one question.
func TestOwnRightsAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, answer := &reviews{}, make(chan struct{})
		own := NewOwnRights(never, interceptor.NewClient(r.client().(client.WithWatch), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				<-answer
				return errors.Join(ctx.Err(), c.Create(ctx, o, opts...))
			},
		}), webhooktest.Clock())
		first, gone := context.WithCancel(t.Context())
		var pods sync.WaitGroup
		allowed := func(ctx context.Context) {
			if allowed, err := own.Allowed(ctx, "shop"); err != nil || !allowed {
				t.Errorf("%t, %v", allowed, err)
			}
		}
		pods.Go(func() { allowed(first) })
		for range 50 {
			synctest.Wait()
			pods.Go(func() { allowed(t.Context()) })
		}
		synctest.Wait()
		gone() // the other Pods still get the answer
		close(answer)
		pods.Wait()
		if len(r.asked) != 4 {
			t.Errorf("%d reviews, want 4: %q", len(r.asked), r.asked)
		}
	})
}
