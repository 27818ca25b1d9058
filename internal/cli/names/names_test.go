package names

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func pod(name string, created time.Time, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created)}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func service(name string, ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(noon)}, Spec: corev1.ServiceSpec{ClusterIPs: ips}}
}

// always is an Existed.
func always(time.Time, string) bool { return true }

// shown returns names as ADDRESS NAME.
func shown(n *pcapng.Names) []string {
	if n == nil {
		return nil
	}
	var all []string
	for _, r := range n.Records {
		all = append(all, fmt.Sprint(r.Address, " ", r.Name))
	}
	return all
}

func TestRefresh(t *testing.T) {
	host, over := pod("host", noon, "192.0.2.1"), pod("over", noon, "10.0.0.9")
	host.Spec.HostNetwork, over.Status.Phase = true, corev1.PodSucceeded
	c := fake.NewClientBuilder().WithObjects(
		pod("web-1", noon, "10.0.0.2", "fd00::2"), pod("starting", noon), host, over, service("web", "10.96.0.1"), service("headless", "None"),
	).Build()
	d := New(c, "shop")
	d.Refresh(t.Context(), always)
	want := []string{"10.0.0.2 shop/web-1", "10.96.0.1 web.shop.svc", "fd00::2 shop/web-1"}
	if diff := cmp.Diff(want, shown(d.Names())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if note := d.Note(); note != "" {
		t.Error(note)
	}
}

// An address that changes hands has no name.
func TestAddressOfTwoPods(t *testing.T) {
	first := pod("web-1", noon, "10.0.0.2")
	c := fake.NewClientBuilder().WithObjects(first, pod("db", noon, "10.0.0.3")).Build()
	d := New(c, "shop")
	d.Refresh(t.Context(), always)
	if got := len(d.News().Records); got != 2 {
		t.Errorf("%d names at first, want 2", got)
	}
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), pod("web-2", noon, "10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	d.Refresh(t.Context(), always)
	if diff := cmp.Diff([]string{"10.0.0.3 shop/db"}, shown(d.Names())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if news := d.News(); news != nil {
		t.Errorf("news %v, want none", news)
	}
}

// A user who may list one namespace gets its names. One who may not is told which rule is missing.
func TestForbidden(t *testing.T) {
	for allowed, want := range map[string]int{"shop": 1, "other": 0} {
		t.Run(allowed, func(t *testing.T) {
			c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod("web-1", noon, "10.0.0.2")).Build(), interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					o := client.ListOptions{}
					if o.ApplyOptions(opts); o.Namespace != allowed {
						return apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
					}
					return c.List(ctx, l, opts...)
				},
			})
			d := New(c, "shop")
			d.Refresh(t.Context(), always)
			if got := len(shown(d.Names())); got != want {
				t.Errorf("%d names, want %d", got, want)
			}
			if told := strings.Contains(d.Note(), "resources: [pods, services], verbs: [list]"); told != (want == 0) {
				t.Errorf("note %q", d.Note())
			}
		})
	}
}

// A large cluster is not read whole, and the note says so.
func TestManyPages(t *testing.T) {
	requests := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			requests++
			l.SetContinue("more")
			return nil
		},
	})
	d := New(c, "shop")
	d.Refresh(t.Context(), always)
	if requests != 2*maxPages || !strings.Contains(d.Note(), "more than 10000") {
		t.Errorf("%d requests, note %q", requests, d.Note())
	}
}

func TestDuring(t *testing.T) {
	at := func(minutes int) *metav1.Time {
		return new(metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)))
	}
	for name, tc := range map[string]struct {
		created int
		uid     string
		live    bool
		want    bool
	}{
		"before":              {created: -1, want: true},
		"meanwhile":           {created: 1, want: false},
		"meanwhile, captured": {created: 1, uid: "web-1", want: true},
		"meanwhile, live":     {created: 1, live: true, want: true},
		"after":               {created: 3, live: true, want: false},
		"after, captured":     {created: 3, uid: "web-1", want: false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := During(at(0), at(2), []string{"web-1"}, tc.live)(at(tc.created).Time, tc.uid); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	if !During(at(0), nil, nil, true)(at(9).Time, "") {
		t.Error("a capture that runs has no end")
	}
}
