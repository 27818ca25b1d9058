//go:build api

package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	"github.com/sonde-operator/sonde/internal/agentjob"
	fluentpvccli "github.com/sonde-operator/sonde/internal/cli/fluentpvc"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/webhooks/sidecar"
)

// TestFluentPVCGrants: with no more rights than the generated role's, the manager's cache follows the RoleBindings of "kubectl sonde
// fluentpvc allow" in all namespaces, whether the API server streams lists or the cache reads pages. In a namespace that has one,
// the webhook sends no review. In any other case it does. The controls: the manager may read no other RoleBinding.
func TestFluentPVCGrants(t *testing.T) {
	applyRoles(t)
	createUntilEnd(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: agentjob.ManagerServiceAccount}})
	for name, streams := range map[string]bool{"streaming lists": true, "pages": false} {
		t.Run(name, func(t *testing.T) {
			featurestesting.SetFeatureDuringTest(t, features.WatchListClient, streams)
			early, late, never := namespace(t, nil), namespace(t, nil), namespace(t, nil)
			allow(t, early)
			user, sent := recorded(config)
			user.Impersonate.UserName = managerUser
			own := startGrants(t, user)
			live, err := client.New(user, client.Options{Scheme: scheme})
			if err != nil {
				t.Fatal(err)
			}
			poll(t, "the RoleBinding from before", func() bool { return own.Granted(t.Context(), early) })
			b := allow(t, late)
			poll(t, "the new RoleBinding", func() bool { return own.Granted(t.Context(), late) })
			// The RoleBinding is for the ServiceAccount, and managerUser is another user: a review would say no.
			rights := sidecar.NewOwnRights(own.Granted, live, clock.RealClock{})
			allowed := func(ns string, want bool, wantReviews int) {
				t.Helper()
				before := len(sent("POST"))
				got, err := rights.Allowed(t.Context(), ns)
				if n := len(sent("POST")) - before; err != nil || got != want || n != wantReviews {
					t.Errorf("allowed: %t, %v, after %d reviews; want %t after %d", got, err, n, want, wantReviews)
				}
			}
			allowed(early, true, 0)
			allowed(late, true, 0)
			allowed(never, false, 1)

			b.Subjects[0].Name = "default"
			if err := admin.Update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			poll(t, "another subject", func() bool { return !own.Granted(t.Context(), late) })
			allowed(late, false, 1)
			allow(t, late)
			poll(t, "the manager as a subject again", func() bool { return own.Granted(t.Context(), late) })
			remove(t, b)
			poll(t, "no RoleBinding", func() bool { return !own.Granted(t.Context(), late) })
			allowed(late, false, 1)

			lists := 0
			for _, r := range sent(http.MethodGet) {
				q := r.URL.Query()
				if !strings.HasSuffix(r.URL.Path, "/rolebindings") {
					continue
				}
				if q.Get("watch") == "" {
					lists++
				}
				if got := q.Get("fieldSelector"); got != "metadata.name=sonde-fluentpvc" {
					t.Errorf("%s with the field selector %q", r.URL, got)
				}
			}
			if (lists == 0) != streams {
				t.Errorf("%d lists, want some only without streaming lists", lists)
			}
			wantNoOtherRoleBindings(t, live, early)
		})
	}
}

// wantNoOtherRoleBindings checks that the manager may not read RoleBindings but by lists and watches of the one name.
func wantNoOtherRoleBindings(t *testing.T, live client.Client, ns string) {
	t.Helper()
	named := func(name string) client.ListOption { return client.MatchingFields{metav1.ObjectNameField: name} }
	for name, tc := range map[string]struct {
		options []client.ListOption
		want    bool
	}{
		"by name":                   {options: []client.ListOption{named(access.RoleFluentPVC)}, want: true},
		"by name, in one namespace": {options: []client.ListOption{named(access.RoleFluentPVC), client.InNamespace(ns)}, want: true},
		"all":                       {},
		"all of one namespace":      {options: []client.ListOption{client.InNamespace(ns)}},
		"by another name":           {options: []client.ListOption{named("admin")}},
	} {
		if err := live.List(t.Context(), &rbacv1.RoleBindingList{}, tc.options...); (err == nil) != tc.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("list %s: %v, want it allowed: %t", name, err, tc.want)
		}
	}
	b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: access.RoleFluentPVC}}
	for verb, err := range map[string]error{
		"get": live.Get(t.Context(), client.ObjectKeyFromObject(b), b.DeepCopy()), "delete": live.Delete(t.Context(), b.DeepCopy()),
		"patch": live.Patch(t.Context(), b.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte("{}"))),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want a refusal", verb, err)
		}
	}
}

// allow runs "kubectl sonde fluentpvc allow" in a namespace, and returns the RoleBinding.
func allow(t *testing.T, ns string) *rbacv1.RoleBinding {
	t.Helper()
	if _, err := (fluentpvccli.Namespace{Client: admin, Name: ns, Operator: operatorNamespace}).Allow(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &rbacv1.RoleBinding{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: access.RoleFluentPVC}, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// startGrants runs the manager's cache until the test ends. Nothing is granted before it is synced, and reads do not wait for that.
func startGrants(t *testing.T, user *rest.Config) fluentpvc.Cache {
	t.Helper()
	own, err := fluentpvc.NewCache(t.Context(), user, operatorNamespace, scheme)
	if err != nil {
		t.Fatal(err)
	}
	if own.Granted(t.Context(), "default") {
		t.Error("granted before the cache runs")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- own.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return own
}

// recorded returns a configuration whose requests are recorded, and a function that returns those of a method.
func recorded(config *rest.Config) (*rest.Config, func(method string) []*http.Request) {
	own := rest.CopyConfig(config)
	var mu sync.Mutex
	var all []*http.Request
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			all = append(all, req)
			mu.Unlock()
			return next.RoundTrip(req)
		})
	})
	return own, func(method string) []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.DeleteFunc(slices.Clone(all), func(r *http.Request) bool { return r.Method != method })
	}
}
