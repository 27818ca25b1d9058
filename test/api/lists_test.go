//go:build api

package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
)

const (
	largePods     = 24 // of 1.4 MiB
	largeCaptures = 12 // of 12,000 labels, from before the webhook's bound
)

// TestCachesWithoutStreamingLists: on an API server without streaming lists, the manager's caches read large Pods and captures
// in pages that are bounded, and have all of them. The first control are caches without pages, which decode each kind as one
// list. The second is an API server with streaming lists, which is asked for no list at all.
func TestCachesWithoutStreamingLists(t *testing.T) {
	env := &envtest.Environment{CRDDirectoryPaths: []string{"../../config/crd/bases"}, ErrorIfCRDPathMissing: true}
	env.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1").Set("feature-gates", "WatchList=false")
	without, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	fill(t, without)
	fill(t, config)

	paged := startCaches(t, without, paging.Informers(podwatch.New(clock.RealClock{}, time.Time{}).NewInformer))
	for _, l := range paged.lists {
		if l.limit == "" || l.version != "" || l.bytes > paging.MaxBytes && l.limit != "1" && !l.refused {
			t.Errorf("read a list %+v, want a page of the newest state of at most %d bytes", l, paging.MaxBytes)
		}
	}
	whole := startCaches(t, without, toolscache.NewSharedIndexInformer)
	if most := whole.largest(); most.limit == "1" || most.bytes < largePods*1400<<10 {
		t.Errorf("without pages the largest list is %+v, want all Pods", most)
	}
	if paged.peak > whole.peak/3 {
		t.Errorf("the heap grew by %d KiB, and by %d KiB without pages, want at most a third", paged.peak>>10, whole.peak>>10)
	}
	streamed := startCaches(t, config, paging.Informers(podwatch.New(clock.RealClock{}, time.Time{}).NewInformer))
	if len(streamed.lists) > 0 {
		t.Errorf("lists %+v of an API server with streaming lists, want none", streamed.lists)
	}
	t.Logf("heap: %d KiB with pages, %d KiB without, %d KiB with streaming lists; %d requests; largest list %+v and %+v",
		paged.peak>>10, whole.peak>>10, streamed.peak>>10, len(paged.lists), paged.largest(), whole.largest())
}

// fill creates the large objects, in a namespace of its own.
func fill(t *testing.T, config *rest.Config) {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the other tests use this server, too
		ctx := context.WithoutCancel(t.Context())
		_ = c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns.Name), client.GracePeriodSeconds(0))
		_ = c.DeleteAllOf(ctx, &sondev1.PacketCapture{}, client.InNamespace(ns.Name))
	})
	var objects []client.Object
	for i := range largePods {
		objects = append(objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprint("large-", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Args: []string{strings.Repeat("a", 1400<<10)}}}},
		})
	}
	for i := range largeCaptures {
		o := object(ns.Name, with(nil))
		o.SetName(fmt.Sprint("large-", i))
		o.SetLabels(manyLabels(12_000, 63))
		objects = append(objects, o)
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// list is a request for a list, and its answer.
type list struct {
	path, limit, version string
	bytes                int
	refused              bool // as too large
}

// filled is how a cache was filled.
type filled struct {
	lists []list
	peak  uint64 // how many bytes the heap grew by
}

func (f *filled) largest() list {
	var most list
	for _, l := range f.lists {
		if l.bytes > most.bytes {
			most = l
		}
	}
	return most
}

// startCaches starts the manager's caches of Pods and captures, checks that they have all objects, and stops them.
func startCaches(t *testing.T, config *rest.Config, newInformer paging.NewInformer) *filled {
	t.Helper()
	f := &filled{}
	var mu sync.Mutex
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if q := req.URL.Query(); err == nil && q.Get("watch") == "" && req.Method == http.MethodGet && isList(req.URL.Path) {
				resp.Body = &counted{ReadCloser: resp.Body, done: func(n int, whole bool) {
					mu.Lock()
					defer mu.Unlock()
					f.lists = append(f.lists, list{req.URL.Path, q.Get("limit"), q.Get("resourceVersion"), n, !whole})
				}}
			}
			return resp, err
		})
	})
	own.Wrap(paging.Bound)
	options, err := capture.CacheOptions("sonde-system")
	if err != nil {
		t.Fatal(err)
	}
	options.Scheme, options.NewInformer = scheme, newInformer
	caches, err := cache.New(own, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{&corev1.Pod{}, &sondev1.PacketCapture{}} {
		if _, err := caches.GetInformer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f.peak = heapGrowth(func() {
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- caches.Start(ctx) }()
		if !caches.WaitForCacheSync(ctx) {
			t.Error("the caches have no list")
		}
		var pods corev1.PodList
		var captures sondev1.PacketCaptureList
		if err := caches.List(ctx, &pods); err != nil || len(pods.Items) < largePods {
			t.Errorf("%d Pods, want %d (%v)", len(pods.Items), largePods, err)
		}
		if err := caches.List(ctx, &captures); err != nil || len(captures.Items) < largeCaptures {
			t.Errorf("%d captures, want %d (%v)", len(captures.Items), largeCaptures, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// isList tells the lists of the caches' kinds from other requests, such as the discovery of APIs.
func isList(path string) bool {
	return strings.HasSuffix(path, "/pods") || strings.HasSuffix(path, "/packetcaptures")
}

// heapGrowth returns by how much the heap grows at most while do runs. The garbage collector runs often, so that it is mostly
// what is in use.
func heapGrowth(do func()) uint64 {
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	before, most := heap(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			most = max(most, heap())
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	<-stopped
	return most - min(before, most)
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// counted reports how much of a body was read, and whether it was all of it.
type counted struct {
	io.ReadCloser
	n    int
	end  bool
	done func(n int, whole bool)
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n += n
	c.end = c.end || err == io.EOF
	return n, err
}

// Close implements io.Closer.
func (c *counted) Close() error {
	if c.done != nil {
		c.done(c.n, c.end)
		c.done = nil
	}
	return c.ReadCloser.Close()
}
