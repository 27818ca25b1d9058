package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// answering returns a Reviewer whose reviews return status, and the specs of its reviews.
func answering(status authorizationv1.SubjectAccessReviewStatus, err error) (*Reviewer, *[]authorizationv1.SubjectAccessReviewSpec) {
	asked := &[]authorizationv1.SubjectAccessReviewSpec{}
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			sar := o.(*authorizationv1.SubjectAccessReview)
			*asked = append(*asked, sar.Spec)
			sar.Status = status
			return err
		},
	}).Build()
	return NewReviewer(c), asked
}

func TestFromUserInfoKeepsAllThatDecides(t *testing.T) {
	got := FromUserInfo(authenticationv1.UserInfo{
		Username: "alice", UID: "u-1", Groups: []string{"dev", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes.authorization.openshift.io": {"user:full"}},
	})
	want := Requester{
		Username: "alice", UID: "u-1", Groups: []string{"dev", "system:authenticated"},
		Extra: map[string][]string{"scopes.authorization.openshift.io": {"user:full"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requester (-want +got):\n%s", diff)
	}
}

func TestReviewAsksForTheVerb(t *testing.T) {
	who := Requester{Username: "alice", UID: "u-1", Groups: []string{"dev"}, Extra: map[string][]string{"scopes": {"a", "b"}}}
	for name, tc := range map[string]struct {
		ask  func(*Reviewer) (Decision, error)
		want authorizationv1.ResourceAttributes
	}{
		"pods": {
			ask:  func(r *Reviewer) (Decision, error) { return r.ReviewPods(t.Context(), "capture", who, "shop") },
			want: authorizationv1.ResourceAttributes{Verb: "capture", Version: "v1", Resource: "pods", Namespace: "shop"},
		},
		"another verb": {
			ask:  func(r *Reviewer) (Decision, error) { return r.ReviewPods(t.Context(), "trace", who, "shop") },
			want: authorizationv1.ResourceAttributes{Verb: "trace", Version: "v1", Resource: "pods", Namespace: "shop"},
		},
		"pods of all namespaces": {
			ask:  func(r *Reviewer) (Decision, error) { return r.ReviewPods(t.Context(), "inject", who, "") },
			want: authorizationv1.ResourceAttributes{Verb: "inject", Version: "v1", Resource: "pods"},
		},
		"nodes": {
			ask:  func(r *Reviewer) (Decision, error) { return r.ReviewNodes(t.Context(), "capture", who) },
			want: authorizationv1.ResourceAttributes{Verb: "capture", Version: "v1", Resource: "nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, asked := answering(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil)
			d, err := tc.ask(r)
			if err != nil || !d.Allowed || d.Reason != "" {
				t.Fatalf("got %+v, %v; want allowed", d, err)
			}
			want := []authorizationv1.SubjectAccessReviewSpec{{
				ResourceAttributes: &tc.want, User: "alice", UID: "u-1", Groups: []string{"dev"},
				Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
			}}
			if diff := cmp.Diff(want, *asked); diff != "" {
				t.Errorf("review (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		who    Requester
		verb   string // by default capture
		status authorizationv1.SubjectAccessReviewStatus
		nodes  bool
		// everywhere reviews pods of all namespaces.
		everywhere bool
		want       []string
	}{
		"pods": {
			who:  Requester{Username: "bob"},
			want: []string{`user "bob" lacks the verb capture on pods in namespace shop`, "kubectl create rolebinding NAME -n shop --clusterrole=sonde-capture --user=bob"},
		},
		"nodes": {
			who: Requester{Username: "bob"}, nodes: true,
			want: []string{"lacks the verb capture on nodes in the cluster", "kubectl create clusterrolebinding NAME --clusterrole=sonde-capture-nodes --user=bob"},
		},
		"another verb's roles": {
			who: Requester{Username: "bob"}, verb: "trace",
			want: []string{`lacks the verb trace on pods`, "--clusterrole=sonde-trace --user=bob"},
		},
		"pods of all namespaces": {
			who: Requester{Username: "bob"}, verb: "inject", everywhere: true,
			want: []string{`user "bob" lacks the verb inject on pods in all namespaces: ask an admin for ClusterRole sonde-inject (kubectl create clusterrolebinding NAME --clusterrole=sonde-inject --user=bob)`},
		},
		"another verb's roles, nodes": {
			who: Requester{Username: "bob"}, verb: "trace", nodes: true,
			want: []string{`lacks the verb trace on nodes`, "--clusterrole=sonde-trace-nodes --user=bob"},
		},
		"denied wins over allowed": {
			who:    Requester{Username: "bob"},
			status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true},
			want:   []string{"lacks the verb capture"},
		},
		"the authorizer's error is quoted": {
			who:    Requester{Username: "bob"},
			status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "webhook timed out"},
			want:   []string{"the authorizer reported: webhook timed out"},
		},
		"no name":             {who: Requester{}, want: []string{"the requester has no name"}},
		"a name for a shell":  {who: Requester{Username: "b'ob; rm"}, want: []string{`--user='b'\''ob; rm'`}},
		"a very long name":    {who: Requester{Username: strings.Repeat("ü", 4000)}, want: []string{"ü..."}},
		"a service account":   {who: Requester{Username: "system:serviceaccount:ci:robot"}, want: []string{"--user=system:serviceaccount:ci:robot"}},
		"a directory account": {who: Requester{Username: "ann@example.org"}, want: []string{"--user=ann@example.org"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := answering(tc.status, nil)
			verb := "capture"
			if tc.verb != "" {
				verb = tc.verb
			}
			namespace := "shop"
			if tc.everywhere {
				namespace = ""
			}
			ask := func() (Decision, error) { return r.ReviewPods(t.Context(), verb, tc.who, namespace) }
			if tc.nodes {
				ask = func() (Decision, error) { return r.ReviewNodes(t.Context(), verb, tc.who) }
			}
			d, err := ask()
			if err != nil || d.Allowed {
				t.Fatalf("got %+v, %v; want a refusal", d, err)
			}
			for _, w := range tc.want {
				if !strings.Contains(d.Reason, w) {
					t.Errorf("reason %q lacks %q", d.Reason, w)
				}
			}
			if len(d.Reason) > 2048 {
				t.Errorf("reason of %d bytes", len(d.Reason))
			}
		})
	}
}

func TestFailedReviewIsNoRefusal(t *testing.T) {
	broken := errors.New("connection refused")
	r, _ := answering(authorizationv1.SubjectAccessReviewStatus{}, broken)
	if _, err := r.ReviewPods(t.Context(), "capture", Requester{Username: "bob"}, "shop"); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// scripted returns the answer that the test set last, and counts its calls.
type scripted struct {
	decision Decision
	err      error
	asked    int
}

func (s *scripted) ReviewPods(context.Context, string, Requester, string) (Decision, error) {
	s.asked++
	return s.decision, s.err
}

func (s *scripted) ReviewNodes(context.Context, string, Requester) (Decision, error) {
	s.asked++
	return s.decision, s.err
}

func TestCachedForgetsInTime(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	src := &scripted{decision: Decision{Allowed: true}}
	c := NewCached(src, clk, 5*time.Second)
	alice := Requester{Username: "alice"}
	ask := func(wantAllowed bool, wantAsked int) {
		t.Helper()
		d, err := c.ReviewPods(t.Context(), "capture", alice, "shop")
		if err != nil || d.Allowed != wantAllowed || src.asked != wantAsked {
			t.Errorf("allowed %t after %d reviews (%v), want %t after %d", d.Allowed, src.asked, err, wantAllowed, wantAsked)
		}
	}
	ask(true, 1)
	src.decision = Decision{Reason: "revoked"}
	clk.Step(4999 * time.Millisecond)
	ask(true, 1)
	clk.Step(time.Millisecond)
	ask(false, 2)

	src.err = errors.New("down")
	clk.Step(5 * time.Second)
	if _, err := c.ReviewPods(t.Context(), "capture", alice, "shop"); err == nil {
		t.Error("a failed review was answered from the cache")
	}
	src.err, src.decision = nil, Decision{Allowed: true}
	ask(true, 4)
}

func TestCachedTellsRequestersApart(t *testing.T) {
	src := &scripted{decision: Decision{Allowed: true}}
	c := NewCached(src, clocktesting.NewFakeClock(time.Unix(1000, 0)), time.Minute)
	for i, who := range []Requester{
		{Username: "a"},
		{Username: "a", UID: "1"},
		{Username: "a", Groups: []string{"x"}},
		{Username: "a", Groups: []string{"x", "y"}},
		{Username: "a", Groups: []string{"xy"}},
		{Username: "a", Extra: map[string][]string{"x": nil}},
		{Username: "a", Extra: map[string][]string{"x": {"y"}}},
		{Username: "a", Extra: map[string][]string{"x": {}, "y": {}}},
	} {
		if _, err := c.ReviewPods(t.Context(), "capture", who, "shop"); err != nil || src.asked != i+1 {
			t.Errorf("requester %d shares a decision with another (%d reviews, %v)", i, src.asked, err)
		}
	}
	before := src.asked
	_, _ = c.ReviewPods(t.Context(), "capture", Requester{Username: "a"}, "other")
	_, _ = c.ReviewNodes(t.Context(), "capture", Requester{Username: "a"})
	_, _ = c.ReviewPods(t.Context(), "trace", Requester{Username: "a"}, "other")
	_, _ = c.ReviewNodes(t.Context(), "trace", Requester{Username: "a"})
	if src.asked != before+4 {
		t.Errorf("%d reviews for another namespace, for nodes, and of both for another verb, want 4", src.asked-before)
	}
}

func TestCachedIsBounded(t *testing.T) {
	src := &scripted{}
	c := NewCached(src, clocktesting.NewFakeClock(time.Unix(1000, 0)), time.Minute)
	for i := range 2*maxCached + 1 {
		_, _ = c.ReviewPods(t.Context(), "capture", Requester{Username: "a", UID: string(rune('a' + i))}, "shop")
	}
	if n := len(c.decisions.Keys()); n > maxCached {
		t.Errorf("%d decisions cached, want at most %d", n, maxCached)
	}
}

// An entry stays until its place is needed. With the groups of users, which may have 64 KiB, a full cache would take 256 MiB.
func TestCachedKeepsNoGroups(t *testing.T) {
	c := NewCached(&scripted{}, clocktesting.NewFakeClock(time.Unix(1000, 0)), time.Minute)
	_, _ = c.ReviewPods(t.Context(), "capture", Requester{Username: "a", Groups: []string{strings.Repeat("g", 64<<10)}}, "shop")
	_, _ = c.ReviewNodes(t.Context(), "capture", Requester{Username: "a", Extra: map[string][]string{"scopes": {strings.Repeat("s", 64<<10)}}})
	for _, key := range c.decisions.Keys() {
		if n := len(fmt.Sprint(key)); n > 256 {
			t.Errorf("a key of %d bytes", n)
		}
	}
}
