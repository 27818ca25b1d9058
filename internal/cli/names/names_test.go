package names

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// cluster is a Source of Pods and Services. Lists of other namespaces than allowed are forbidden; all are allowed if it is nil.
type cluster struct {
	pods     []corev1.Pod
	services []corev1.Service
	allowed  *string
}

func (c *cluster) List(_ context.Context, resource, namespace, _ string) (io.ReadCloser, error) {
	if c.allowed != nil && namespace != *c.allowed {
		return nil, apierrors.NewForbidden(corev1.Resource(resource), "", nil)
	}
	var list any = corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: c.pods}
	if resource == "services" {
		list = corev1.ServiceList{Items: c.services}
	}
	b, err := json.Marshal(list)
	return io.NopCloser(bytes.NewReader(b)), err
}

// sourceFunc is a Source.
type sourceFunc func() string

func (f sourceFunc) List(context.Context, string, string, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(f())), nil
}

// always is an Existed.
func always(time.Time, string) Existence { return Present }

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
	d := New(&cluster{
		pods:     []corev1.Pod{*pod("web-1", noon, "10.0.0.2", "fd00::2"), *pod("starting", noon), *host, *over},
		services: []corev1.Service{*service("web", "10.96.0.1"), *service("headless", "None")},
	}, "shop")
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
	c := &cluster{pods: []corev1.Pod{*pod("web-1", noon, "10.0.0.2"), *pod("db", noon, "10.0.0.3")}}
	d := New(c, "shop")
	d.Refresh(t.Context(), always)
	if got := len(d.News().Records); got != 2 {
		t.Errorf("%d names at first, want 2", got)
	}
	c.pods[0] = *pod("web-2", noon, "10.0.0.2")
	d.Refresh(t.Context(), always)
	if diff := cmp.Diff([]string{"10.0.0.3 shop/db"}, shown(d.Names())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.2 10.0.0.2"}, shown(d.News())); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	if news := d.News(); news != nil {
		t.Errorf("news %v, want none", news)
	}
}

// A Pod that gets no name, because it was created during a capture, takes the name from the address of the Pod before it.
func TestAddressOfALaterPod(t *testing.T) {
	c := &cluster{pods: []corev1.Pod{*pod("web-1", noon, "10.0.0.2")}, services: []corev1.Service{*service("web", "10.96.0.1")}}
	d := New(c, "shop")
	d.Refresh(t.Context(), always)
	later := service("db", "10.96.0.1")
	later.CreationTimestamp = metav1.NewTime(noon.Add(time.Minute))
	c.pods[0], c.services[0] = *pod("job", noon.Add(time.Minute), "10.0.0.2", "10.0.0.3"), *later
	d.Refresh(t.Context(), During(new(metav1.NewTime(noon)), new(metav1.NewTime(noon.Add(time.Hour))), nil, false))
	if names := d.Names(); names != nil {
		t.Errorf("names %v, want none", names)
	}
	// One that was created after the capture takes none.
	d = New(c, "shop")
	c.pods[0] = *pod("web-1", noon, "10.0.0.2")
	d.Refresh(t.Context(), always)
	c.pods[0] = *pod("job", noon.Add(time.Minute), "10.0.0.2")
	d.Refresh(t.Context(), During(new(metav1.NewTime(noon)), new(metav1.NewTime(noon.Add(time.Second))), nil, false))
	if want := []string{"10.0.0.2 shop/web-1"}; !slices.Contains(shown(d.Names()), want[0]) {
		t.Errorf("names %v, want %v", shown(d.Names()), want)
	}
}

// A user who may list one namespace gets its names. One who may not gets a message that names the missing rule.
func TestForbidden(t *testing.T) {
	for allowed, want := range map[string]int{"shop": 1, "other": 0} {
		t.Run(allowed, func(t *testing.T) {
			c := &cluster{pods: []corev1.Pod{*pod("web-1", noon, "10.0.0.2")}, allowed: &allowed}
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
	d := New(sourceFunc(func() string {
		requests++
		return `{"metadata": {"continue": "more"}, "items": null}`
	}), "shop")
	d.Refresh(t.Context(), always)
	if requests != 2*maxPages || !strings.Contains(d.Note(), "more than 10000") {
		t.Errorf("%d requests, note %q", requests, d.Note())
	}
}

// A tenant's huge Pod takes little memory of others who list it.
func TestNamesOfLargePods(t *testing.T) {
	const terms, pods = 700_000, 4
	huge := `{"metadata": {"name": "huge"}, "spec": {"affinity": [` + strings.Repeat("{},", terms) + `{}]}, "status": {"podIPs": [{"ip": "10.0.0.9"}]}}`
	d := New(sourceFunc(func() string {
		return `{"kind": "List", "apiVersion": "v1", "items": [` + strings.Repeat(huge+",", pods) + huge + `]}`
	}), "shop")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d.Refresh(t.Context(), always)
	runtime.ReadMemStats(&after)
	if got := shown(d.Names()); len(got) != 1 {
		t.Errorf("names %v", got)
	}
	// Two lists, which are made here, and the decoder's buffer of one object. As corev1.Pod each would take 32 MiB.
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 80 {
		t.Errorf("%d MiB are allocated", got)
	}
}

// What is no list is an error.
func TestBrokenList(t *testing.T) {
	for _, text := range []string{"", "[]", `{"items": {}}`, `{"items": [{"metadata": `, `{"items": [1]}`, `{"metadata": 1}`} {
		d := New(sourceFunc(func() string { return text }), "shop")
		d.Refresh(t.Context(), always)
		if note := d.Note(); !strings.Contains(note, "read a list of pods") {
			t.Errorf("%s: note %q", text, note)
		}
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
		want    Existence
	}{
		"before":              {created: -1, want: Present},
		"meanwhile":           {created: 1, want: Partly},
		"meanwhile, captured": {created: 1, uid: "web-1", want: Present},
		"meanwhile, live":     {created: 1, live: true, want: Present},
		"after":               {created: 3, live: true, want: Absent},
		"after, captured":     {created: 3, uid: "web-1", want: Absent},
	} {
		t.Run(name, func(t *testing.T) {
			if got := During(at(0), at(2), []string{"web-1"}, tc.live)(at(tc.created).Time, tc.uid); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	if During(at(0), nil, nil, true)(at(9).Time, "") != Present {
		t.Error("a capture that runs has no end")
	}
}
