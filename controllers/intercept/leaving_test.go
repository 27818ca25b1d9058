package intercept

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestPodsThatOutliveTheirOwner: a Pod keeps its carrier until it has ended, also if its ReplicaSet or its Deployment is gone before. Then
// the connections that its app still serves end by themselves.
func TestPodsThatOutliveTheirOwner(t *testing.T) {
	pod := func(name string) *slim.Pod { return podNamed(name, nil) }
	had := intercepting("a", "web-1", "web-2")
	had.foundAt = noon
	had.Status.Pods = []sondev1.InterceptPod{{Name: "web-1", UID: "uid-web-1", Job: "carrier-1"}, {Name: "web-2", UID: "uid-web-2", Job: "carrier-2"}}
	for name, tc := range map[string]struct {
		found target.Workload
		after time.Duration
		want  []string
	}{
		"its ReplicaSet is gone":             {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}, Former: []*slim.Pod{pod("web-1")}}, time.Hour, []string{"web-2", "web-1"}},
		"it is not of this request":          {target.Workload{Found: true, Former: []*slim.Pod{pod("web-3")}}, 0, nil},
		"it was removed":                     {target.Workload{Found: true, Pods: []*slim.Pod{pod("web-2")}}, 0, []string{"web-2"}},
		"its Deployment is gone":             {target.Workload{}, leaveDelay - 1, []string{"web-1", "web-2"}},
		"its Deployment is gone, and it too": {target.Workload{Former: []*slim.Pod{pod("web-2")}}, leaveDelay, []string{"web-2"}},
		"its Deployment is gone for long":    {target.Workload{}, leaveDelay, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, restarted := range []bool{false, true} {
				r := &Reconciler{previous: map[types.UID]*request{had.UID: had}}
				if restarted {
					r.previous = nil
				}
				q := &request{InterceptRequest: had.DeepCopy(), reading: reading{at: noon.Add(tc.after)}}
				r.usePods(q, &tc.found)
				var got []string
				for _, p := range q.pods {
					got = append(got, p.GetName())
				}
				if restarted && !tc.found.Found && tc.found.Former == nil {
					tc.want = nil // a manager that has just started does not know when the target was there
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("restarted %t: Pods (-want +got):\n%s", restarted, diff)
				}
			}
		})
	}
}
