package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestAwaitOwnRights(t *testing.T) {
	allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	for name, tc := range map[string]struct {
		answers  []authorizationv1.SubjectAccessReviewStatus // the last one stays
		err      error
		patience time.Duration
		wantErr  string
	}{
		"bound":       {answers: []authorizationv1.SubjectAccessReviewStatus{allowed}, patience: time.Minute},
		"bound later": {answers: []authorizationv1.SubjectAccessReviewStatus{{}, {}, allowed}, patience: time.Minute},
		"never":       {answers: []authorizationv1.SubjectAccessReviewStatus{{}}, patience: time.Millisecond, wantErr: "kubectl create rolebinding sonde-here -n elsewhere --role=sonde-manager --serviceaccount=elsewhere:sonde-manager"},
		"denied":      {answers: []authorizationv1.SubjectAccessReviewStatus{{Allowed: true, Denied: true}}, patience: time.Millisecond, wantErr: "install Sonde into the namespace sonde-system"},
		"no answer":   {answers: []authorizationv1.SubjectAccessReviewStatus{allowed}, err: errors.New("no route"), patience: time.Minute, wantErr: "review the operator's right to create jobs in namespace elsewhere: no route"},
		"no patience": {answers: []authorizationv1.SubjectAccessReviewStatus{allowed}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []authorizationv1.ResourceAttributes
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					review := o.(*authorizationv1.SelfSubjectAccessReview)
					review.Status = tc.answers[min(len(asked), len(tc.answers)-1)]
					asked = append(asked, *review.Spec.ResourceAttributes)
					return tc.err
				},
			}).Build()
			err := AwaitOwnRights(t.Context(), c, "elsewhere", tc.patience)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error is %v, want %q", err, tc.wantErr)
			}
			want := authorizationv1.ResourceAttributes{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs", Namespace: "elsewhere"}
			if len(asked) == 0 {
				t.Fatal("no review was asked for")
			}
			if diff := cmp.Diff(want, asked[0]); diff != "" {
				t.Errorf("review (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAwaitOwnRightsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			cancel()
			return nil
		},
	}).Build()
	if err := AwaitOwnRights(ctx, c, "elsewhere", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
}

// TestAwaitOwnRightsBlamesRBACOnlyForItsAnswer checks the error when the API server stops answering. It must not advise to bind
// a Role, unless an earlier review was refused.
func TestAwaitOwnRightsBlamesRBACOnlyForItsAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		refusals int
		wantErr  string
	}{
		"never answered":             {wantErr: "review the operator's right to create jobs in namespace elsewhere: context deadline exceeded"},
		"refused first, then silent": {refusals: 1, wantErr: "bind the Role"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
					if asked++; asked <= tc.refusals {
						return nil // allowed is false
					}
					<-ctx.Done()
					return ctx.Err()
				},
			}).Build()
			err := AwaitOwnRights(t.Context(), c, "elsewhere", 2*ownRetry)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("error is %v, want %q", err, tc.wantErr)
			}
			if advised := strings.Contains(err.Error(), "create rolebinding"); advised != (tc.refusals > 0) {
				t.Errorf("error is %v: advises to bind the Role: %t, after %d refusals", err, advised, tc.refusals)
			}
		})
	}
}
