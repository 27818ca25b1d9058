package paging_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// source has Pods and answers an informer as the API server does.
type source struct {
	pods      int
	streams   bool         // it sends lists at the beginning of a watch
	expired   map[int]bool // requests for a page whose state has become too old
	transform func() int   // how many Pods have been transformed
	requests  []string
	watches   chan string // versions from which changes are watched
}

func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	s.requests = append(s.requests, fmt.Sprintf("%d from %q of version %q with %d kept", o.Limit, o.Continue, o.ResourceVersion, s.transform()))
	if s.expired[len(s.requests)] {
		return nil, apierrors.NewResourceExpired("too old")
	}
	from, _ := strconv.Atoi("0" + o.Continue)
	to := min(from+int(o.Limit), s.pods)
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	if from > 0 {
		list.ResourceVersion = "8"
	}
	for i := from; i < to; i++ {
		list.Items = append(list.Items, pod(i))
	}
	if to < s.pods {
		list.Continue = strconv.Itoa(to)
	}
	return list, nil
}

func pod(i int) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strconv.Itoa(i), Labels: map[string]string{"large": "yes"}, ResourceVersion: "5"}}
}

func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	events := watch.NewRaceFreeFake()
	switch {
	case o.SendInitialEvents == nil:
		s.watches <- o.ResourceVersion
	case !s.streams:
		return nil, apierrors.NewInvalid(schemaKind, "", nil)
	default:
		for i := range s.pods {
			p := pod(i)
			events.Add(&p)
		}
		events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		s.watches <- "stream"
	}
	return events, nil
}

var schemaKind = metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind()

// TestInformers: without streaming lists, an informer reads pages of the newest state, transforms each before it reads the
// next, watches from the state of the first, and begins again if the API server has no longer the state. With them it lists
// nothing.
func TestInformers(t *testing.T) {
	for name, tc := range map[string]struct {
		source source
		want   []string
		watch  string
	}{
		"no Pods": {source{}, []string{`64 from "" of version "" with 0 kept`}, "7"},
		"three pages": {source{pods: 130}, []string{
			`64 from "" of version "" with 0 kept`, `64 from "64" of version "" with 64 kept`, `64 from "128" of version "" with 128 kept`,
		}, "7"},
		"too old in between": {source{pods: 100, expired: map[int]bool{2: true}}, []string{
			`64 from "" of version "" with 0 kept`, `64 from "64" of version "" with 64 kept`,
			`64 from "" of version "" with 64 kept`, `64 from "64" of version "" with 128 kept`,
		}, "7"},
		"streaming lists": {source{pods: 50, streams: true}, nil, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			s, transformed := tc.source, 0
			s.transform, s.watches = func() int { return transformed }, make(chan string, 1)
			i := paging.Informers(cache.NewSharedIndexInformer)(&s, &corev1.Pod{}, 0, nil)
			if err := i.SetTransform(func(o any) (any, error) {
				if p, ok := o.(*corev1.Pod); ok && p.Labels != nil {
					p.Labels = nil
					transformed++
				}
				return o, nil
			}); err != nil {
				t.Fatal(err)
			}
			run(t, i)
			if got := <-s.watches; got != tc.watch {
				t.Errorf("watched from %q, want %q", got, tc.watch)
			}
			if diff := cmp.Diff(tc.want, s.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if got := len(i.GetStore().List()); got != s.pods {
				t.Errorf("the store has %d Pods, want %d", got, s.pods)
			}
		})
	}
}

// run runs an informer until it has its list, and ends it.
func run(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { i.RunWithContext(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("not synced")
	}
}

// busy fails the test if two lists are read at once.
type busy struct {
	source
	t   *testing.T
	now *atomic.Int64
}

func (s *busy) List(o metav1.ListOptions) (runtime.Object, error) {
	if n := s.now.Add(1); n > 1 {
		s.t.Errorf("%d pages at once", n)
	}
	defer s.now.Add(-1)
	for range 100 {
		goruntime.Gosched()
	}
	return s.source.List(o)
}

// TestInformersTakeTurns: the informers of several kinds read one page at a time.
func TestInformersTakeTurns(t *testing.T) {
	var now atomic.Int64
	newInformer := paging.Informers(cache.NewSharedIndexInformer)
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := &busy{source{pods: 1000, transform: func() int { return 0 }, watches: make(chan string, 1)}, t, &now}
			run(t, newInformer(s, &corev1.Pod{}, 0, nil))
		})
	}
}

// TestTransformFails: a transformation that fails, or does not return an object, fails the list.
func TestTransformFails(t *testing.T) {
	for name, tc := range map[string]func(any) (any, error){
		"an error":  func(any) (any, error) { return nil, errServer },
		"no object": func(any) (any, error) { return "text", nil },
	} {
		t.Run(name, func(t *testing.T) {
			var from cache.ListerWatcher
			i := paging.Informers(func(l cache.ListerWatcher, o runtime.Object, _ time.Duration, x cache.Indexers) cache.SharedIndexInformer {
				from = l
				return cache.NewSharedIndexInformer(l, o, 0, x)
			})(&source{pods: 1, transform: func() int { return 0 }}, &corev1.Pod{}, 0, nil)
			if err := i.SetTransform(tc); err != nil {
				t.Fatal(err)
			}
			if list, err := cache.ToListerWatcherWithContext(from).ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
				t.Errorf("listed %v", list)
			} else if name == "an error" && !errors.Is(err, errServer) {
				t.Errorf("error %v", err)
			}
		})
	}
}
