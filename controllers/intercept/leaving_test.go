package intercept

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestPodsThatOutliveTheirOwner: a Pod keeps its carrier until it has ended, also if its ReplicaSet or its Deployment is gone before. Then
// the connections that its app still serves end by themselves.
func TestPodsThatOutliveTheirOwner(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "uid-set", Controller: new(true)}
	owned := func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{owner} }
	pod := func(name string) *slim.Pod { return podNamed(name, owned) }
	had := intercepting("a")
	had.pods = []*slim.Pod{pod("web-1"), pod("web-2")}
	both := []string{"web-1", "web-2"}
	had.Status.Pods = []sondev1.InterceptPod{{Name: "web-1", UID: "uid-web-1", Job: "carrier-1"}, {Name: "web-2", UID: "uid-web-2", Job: "carrier-2"}}
	for name, tc := range map[string]struct {
		found  target.Workload
		after  time.Duration
		cached []string // Pods that still have their owner
		want   []string
	}{
		"its ReplicaSet is gone":             {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}, Former: []*slim.Pod{pod("web-1")}}, time.Hour, both, []string{"web-2", "web-1"}},
		"it is not said to be deleted yet":   {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}}, leaveDelay - 1, both, []string{"web-2", "web-1"}},
		"nor after long":                     {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}}, leaveDelay, both, []string{"web-2"}},
		"it is not of this request":          {target.Workload{Found: true, Former: []*slim.Pod{pod("web-3")}}, 0, nil, nil},
		"it was removed":                     {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}}, 0, both[1:], []string{"web-2"}},
		"its Deployment is gone":             {target.Workload{}, leaveDelay - 1, both, both},
		"its Deployment is gone, and it too": {target.Workload{Former: []*slim.Pod{pod("web-2")}}, leaveDelay, both[1:], []string{"web-2"}},
		"its Deployment is gone for long":    {target.Workload{}, leaveDelay, both, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restarted := range []bool{false, true} {
				cache := fake.NewClientBuilder()
				for _, name := range tc.cached {
					cache.WithObjects(pod(name).Expand())
				}
				r := &Reconciler{Client: cache.Build(), previous: map[types.UID]*request{had.UID: had}}
				if restarted {
					r.previous = nil
				}
				q := &request{InterceptRequest: had.DeepCopy(), reading: reading{at: noon.Add(tc.after)}}
				r.usePods(t.Context(), q, &tc.found)
				var got []string
				for _, p := range q.pods {
					got = append(got, p.GetName())
				}
				want := tc.want
				if restarted { // a manager that has just started does not know when the target had the Pod
					want = nil
					for _, p := range slices.Concat(tc.found.Pods, tc.found.Former) {
						if slices.Contains(tc.want, p.GetName()) {
							want = append(want, p.GetName())
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("restarted %t: Pods (-want +got):\n%s", restarted, diff)
				}
			}
		})
	}
}
