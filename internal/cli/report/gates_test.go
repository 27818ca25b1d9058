package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestGateNotes(t *testing.T) {
	gated := func(name string, outcome v1alpha1.GateOutcome, waited int64) v1alpha1.PodResult {
		return v1alpha1.PodResult{Name: name, Gate: &v1alpha1.GateResult{Outcome: outcome, WaitedMilliseconds: waited}}
	}
	for name, tc := range map[string]struct {
		pods []v1alpha1.PodResult
		want []string
	}{
		"no gate": {pods: []v1alpha1.PodResult{{Name: "web-1"}}},
		"one": {
			pods: []v1alpha1.PodResult{gated("web-1", v1alpha1.GateOpened, 650)},
			want: []string{"1 Pod was traced from its first instruction and waited 650ms"},
		},
		"two": {
			pods: []v1alpha1.PodResult{gated("web-1", v1alpha1.GateOpened, 130), gated("web-2", v1alpha1.GateOpened, 2)},
			want: []string{"2 Pods were traced from their first instruction and waited 2ms to 130ms"},
		},
		"an odd number": {
			pods: []v1alpha1.PodResult{
				gated("web-1", v1alpha1.GateOpened, 1), gated("web-2", v1alpha1.GateOpened, 2), gated("web-3", v1alpha1.GateOpened, 3),
				gated("web-4", v1alpha1.GateOpened, 40), gated("web-5", v1alpha1.GateOpened, 50),
			},
			want: []string{"5 Pods were traced from their first instruction and waited 3ms (median), at most 50ms"},
		},
		"an even number": {
			pods: []v1alpha1.PodResult{
				gated("web-1", v1alpha1.GateOpened, 1), gated("web-2", v1alpha1.GateOpened, 2), gated("web-3", v1alpha1.GateOpened, 3),
				gated("web-4", v1alpha1.GateOpened, 40), gated("web-5", v1alpha1.GateOpened, 50), gated("web-6", v1alpha1.GateOpened, 60),
			},
			want: []string{"6 Pods were traced from their first instruction and waited 21.5ms (median), at most 60ms"},
		},
		"some, and some not": {
			pods: []v1alpha1.PodResult{
				gated("web-1", v1alpha1.GateOpened, 1500),
				{Name: "web-2"},
				gated("web-3", v1alpha1.GateUntraced, 30000),
				gated("web-4", v1alpha1.GateOpened, 600), gated("web-5", v1alpha1.GateOpened, 700), gated("web-6", v1alpha1.GateNotStarted, 0),
			},
			want: []string{
				"3 Pods were traced from their first instruction and waited 600ms to 1.5s",
				"these gates did not open for a tracer, so the first events of their Pods may be missing: web-3 (Untraced), web-6 (NotStarted)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, gateNotes(tc.pods)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
