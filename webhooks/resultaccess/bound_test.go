package resultaccess

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// cache has objects, with the indexes of the manager's cache.
func cache(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	b := fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(objects...)
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return b.Build()
}

// hash number i.
func hash(i int) string { return fmt.Sprintf("%064x", i) }

// to is a ResultAccess to a PacketCapture with hash number i.
func to(ns, capture string, i int) *sondev1.ResultAccess {
	m := webhooktest.Meta(ns, fmt.Sprint("a-", i))
	m.CreationTimestamp = metav1.NewTime(webhooktest.Now)
	return &sondev1.ResultAccess{ObjectMeta: m, Spec: sondev1.ResultAccessSpec{
		CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: capture},
		TokenHash:  hash(i), ExpirationSeconds: 900,
	}}
}

// existing is a ResultAccess that the webhook admitted.
func existing(t *testing.T, ns, capture string, i int, targetUID string, age time.Duration) *sondev1.ResultAccess {
	t.Helper()
	ra := to(ns, capture, i)
	ra.CreationTimestamp = metav1.NewTime(webhooktest.Now.Add(-age))
	a, err := stamp.Sign(webhooktest.Key, ns, stamp.KindResultAccess, ra.Spec, stamp.Claim{
		Requester: access.Requester{Username: "bob"}, TargetNamespaceUID: targetUID, IssuedAt: webhooktest.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	ra.Annotations = a
	return ra
}

func many(n int, of func(i int) client.Object) []client.Object {
	var all []client.Object
	for i := range n {
		all = append(all, of(i))
	}
	return all
}

func TestBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		existing []client.Object
		ra       *sondev1.ResultAccess
		code     int32
		want     string
	}{
		"the first":                 {ra: to("shop", "web", 1)},
		"the hash of another":       {existing: []client.Object{existing(t, "shop", "web", 1, "uid-shop", 0)}, ra: to("shop", "web", 1), code: webhooktest.Invalid, want: "in use by another ResultAccess"},
		"in another namespace":      {existing: []client.Object{existing(t, "elsewhere", "x", 1, "uid-x", 0)}, ra: to("shop", "web", 1), code: webhooktest.Invalid, want: "in use by another ResultAccess"},
		"the hash of an expired":    {existing: []client.Object{existing(t, "shop", "web", 1, "uid-shop", time.Hour)}, ra: to("shop", "web", 1)},
		"the last of a capture":     {existing: many(maxPerCapture-1, func(i int) client.Object { return existing(t, "shop", "web", i, "uid-shop", 0) }), ra: to("shop", "web", 999)},
		"too many of a capture":     {existing: many(maxPerCapture, func(i int) client.Object { return existing(t, "shop", "web", i, "uid-shop", 0) }), ra: to("shop", "web", 999), code: webhooktest.Forbidden, want: "PacketCapture shop/web has 64 ResultAccesses, the most for one: delete"},
		"expired ones do not count": {existing: many(maxPerCapture, func(i int) client.Object { return existing(t, "shop", "web", i, "uid-shop", time.Hour) }), ra: to("shop", "web", 999)},
		"another's of that name":    {existing: many(maxPerCapture, func(i int) client.Object { return existing(t, "hub", "web", i, "uid-x", 0) }), ra: to("shop", "web", 999)},
		"too many of a namespace": {
			existing: many(maxPerNamespace, func(i int) client.Object { return existing(t, "shop", fmt.Sprint("c", i/50), i, "uid-shop", 0) }),
			ra:       to("shop", "web", 999), code: webhooktest.Forbidden, want: "there are 256 ResultAccesses for captures of this target's namespace",
		},
		"expired ones that finalizers keep": {
			existing: many(maxKept, func(i int) client.Object { return existing(t, "shop", fmt.Sprint("c", i/50), i, "uid-shop", time.Hour) }),
			ra:       to("shop", "web", 9999), code: webhooktest.Forbidden, want: "expired ones included, the most for one: wait until",
		},
		"another namespace's": {
			existing: many(maxKept, func(i int) client.Object { return existing(t, "bank", fmt.Sprint("c", i/50), i, "uid-bank", time.Hour) }),
			ra:       to("shop", "web", 9999),
		},
		"too many of a namespace, from a hub": {
			existing: many(maxPerNamespace, func(i int) client.Object { return existing(t, "bank", fmt.Sprint("c", i/50), i, "uid-bank", 0) }),
			ra:       to("hub", "vault", 999), code: webhooktest.Forbidden, want: "this target's namespace",
		},
		"a hub that others fill": {
			existing: many(maxPerNamespace, func(i int) client.Object { return existing(t, "hub", fmt.Sprint("c", i/50), i, "uid-x", 0) }),
			ra:       to("hub", "vault", 999),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Handler{
				Live:  webhooktest.Reader(t, append(webhooktest.Objects(), captures(t)...)...),
				Cache: cache(t, tc.existing...), Reviews: webhooktest.May("pods/shop", "pods/bank"), Key: webhooktest.Key, Clock: webhooktest.Clock(),
			}
			resp := h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "ResultAccess", tc.ra.Namespace, tc.ra, nil))
			if tc.code != 0 {
				webhooktest.Refused(t, resp, tc.code, tc.want)
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}

// TestBoundsOfRequestsAtTheSameTime: the cache has none of them yet.
func TestBoundsOfRequestsAtTheSameTime(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(webhooktest.Now)
	h := &Handler{
		Live:  webhooktest.Reader(t, append(webhooktest.Objects(), captures(t)...)...),
		Cache: cache(t), Reviews: webhooktest.May("pods/shop"), Key: webhooktest.Key, Clock: clock,
	}
	create := func(i int, dryRun bool) webhook.AdmissionResponse {
		req := webhooktest.Request(t, admissionv1.Create, "ResultAccess", "shop", to("shop", "web", i), nil)
		req.DryRun = &dryRun
		return h.Handle(context.Background(), req)
	}
	var group sync.WaitGroup
	var allowed atomic.Int64
	for i := range 2 * maxPerCapture {
		group.Go(func() {
			create(i, true) // changes nothing
			if create(i, false).Allowed {
				allowed.Add(1)
			}
		})
	}
	group.Wait()
	if allowed.Load() != maxPerCapture {
		t.Errorf("%d admitted, want %d", allowed.Load(), maxPerCapture)
	}
	clock.SetTime(clock.Now().Add(recentFor))
	if resp := create(1000, false); !resp.Allowed {
		t.Errorf("refused after those that the cache never saw: %s", resp.Result.Message)
	}
	if resp := create(1000, false); !resp.Allowed {
		t.Errorf("refused when asked again about the same request: %s", resp.Result.Message)
	}
	if resp := create(1000, false); resp.Allowed || !strings.Contains(resp.Result.Message, "in use by another") {
		t.Error("a hash is admitted time and again")
	}
	create(1001, false)
	req := webhooktest.Request(t, admissionv1.Create, "ResultAccess", "shop", to("shop", "web", 1001), nil)
	req.UserInfo.Username = "mallory"
	if resp := h.Handle(t.Context(), req); resp.Allowed || !strings.Contains(resp.Result.Message, "in use by another") {
		t.Error("the hash of a request at the same time is admitted")
	}
	if len(h.recent.byHash) != 2 {
		t.Errorf("%d are remembered", len(h.recent.byHash))
	}
}
