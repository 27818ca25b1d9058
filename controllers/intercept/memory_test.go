package intercept

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// long returns a name of 253 bytes, the most that the API allows, that differs for each number.
func long(n int) string { return fmt.Sprintf("%0253d", n) }

// greedy returns the Pods of a namespace's target with the longest names: 20 that can have a carrier, and 130 on nodes that are made up,
// each on another one.
func greedy(namespace int, nodes map[string]nodeReading) []*slim.Pod {
	var pods []*slim.Pod
	for i := range 150 {
		pods = append(pods, podNamed(long(i), func(p *corev1.Pod) {
			p.Namespace, p.UID = fmt.Sprint("greedy-", namespace), types.UID(fmt.Sprintf("3b0e0a5c-5d0b-4a6e-9a3f-%06d%06d", namespace, i))
			if p.Spec.NodeName = fmt.Sprint("node-", i); i >= 20 {
				p.Spec.NodeName = long(namespace*1000 + i)
			}
			nodes[p.Spec.NodeName] = nodeReading{exists: i < 20, at: noon}
		}))
	}
	return pods
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfStatuses measures what the manager keeps of all InterceptRequests that may intercept, if 20 tenants make their statuses as
// large as they can: the cache, what a pass keeps for the next one, and a second pass.
func TestMemoryOfStatuses(t *testing.T) {
	const mostMiB, mostJSON = 80, 32 << 10
	o := &observation{stowaway: up, nodes: map[string]nodeReading{}}
	done := &actions{refused: map[types.UID]string{}}
	pods := map[string][]*slim.Pod{}
	for namespace := range 20 {
		name := fmt.Sprint("greedy-", namespace)
		pods[name] = greedy(namespace, o.nodes)
		for i, pod := range pods[name] { // the API server may answer at length why it creates no carrier
			done.refused[pod.GetUID()] = fmt.Sprintf("%6d%6d", namespace, i) + strings.Repeat("x", maxMessage)
		}
	}
	intercept := func(namespace string, i int) *request {
		q := intercepting(fmt.Sprint(namespace, "-", i))
		q.Namespace = namespace
		return q
	}
	before := heap()
	var cache []*sondev1.InterceptRequest
	for namespace := range pods {
		for i := range 50 {
			cache = append(cache, intercept(namespace, i).InterceptRequest)
		}
	}
	// pass returns what one pass keeps.
	pass := func() []*request {
		var kept []*request
		for _, cached := range cache {
			q := intercept(cached.Namespace, 0)
			q.InterceptRequest, q.pods = cached.DeepCopy(), pods[cached.Namespace]
			kept = append(kept, q)
		}
		o.requests = kept
		p := planFor(o, limits, noon)
		for _, q := range kept {
			statusOf(q, o, p, done, noon)
		}
		o.requests = nil
		return kept
	}
	entries, largest := 0, 0
	for i, q := range pass() {
		text, err := json.Marshal(q.InterceptRequest)
		if err != nil {
			t.Fatal(err)
		}
		entries, largest = entries+len(q.Status.Pods), max(largest, len(text))
		read := &sondev1.InterceptRequest{}
		if err := json.Unmarshal(text, read); err != nil {
			t.Fatal(err)
		}
		stripped, err := target.Strip(read)
		if err != nil {
			t.Fatal(err)
		}
		cache[i] = stripped.(*sondev1.InterceptRequest)
	}
	cached := heap() - before
	previous := pass()
	again := pass()
	all := heap() - before
	t.Logf("%d requests with %d entries, the largest of %d KiB as JSON: the cache takes %d MiB, with two passes %d MiB", len(cache), entries, largest>>10, cached>>20, all>>20)
	if len(cache) != tunnel.MaxRoutes {
		t.Errorf("%d requests, want %d", len(cache), tunnel.MaxRoutes)
	}
	if all>>20 > mostMiB || largest > mostJSON {
		t.Errorf("%d MiB and a status of %d KiB, want at most %d MiB and %d KiB", all>>20, largest>>10, mostMiB, mostJSON>>10)
	}
	if most := tunnel.MaxRoutedPods + tunnel.MaxRoutes*maxOthers; entries > most {
		t.Errorf("%d entries, want at most %d", entries, most)
	}
	runtime.KeepAlive(cache)
	runtime.KeepAlive(previous)
	runtime.KeepAlive(again)
	runtime.KeepAlive(pods)
}
