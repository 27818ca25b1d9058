package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestEngineNotes(t *testing.T) {
	const old, small = "attach at tcx: not supported (requires >= v6.6)", "the filter is too long"
	for name, tc := range map[string]struct {
		pods []v1alpha1.PodResult
		want []string
	}{
		"nothing to say": {pods: []v1alpha1.PodResult{{Name: "web-1", Engine: "tcx"}, {Name: "web-2"}}},
		"one":            {pods: []v1alpha1.PodResult{{Name: "web-1", Engine: "afpacket", EngineMessage: old}}, want: []string{"by afpacket: " + old + " (web-1)"}},
		"each reason once": {
			pods: []v1alpha1.PodResult{
				{Name: "web-1", Engine: "afpacket", EngineMessage: old},
				{Name: "web-2", Engine: "afpacket", EngineMessage: small},
				{Name: "web-3", Engine: "afpacket", EngineMessage: old},
				{Name: "web-4", Engine: "afpacket", EngineMessage: old},
			},
			want: []string{"by afpacket: " + old + " (web-1 and 2 more)", "by afpacket: " + small + " (web-2)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, engineNotes(tc.pods)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Only the wide table has the engine, and only if it is known.
func TestWideTable(t *testing.T) {
	p := whole()
	r := New(ended(v1alpha1.PhaseCompleted, "", ""), []v1alpha1.PodResult{p}, saved())
	if r.WideTable() != r.Table() {
		t.Errorf("of no engine\n%s", r.WideTable())
	}
	p.Engine = "clsact"
	r = New(ended(v1alpha1.PhaseCompleted, "", ""), []v1alpha1.PodResult{p, killed()}, saved())
	if strings.Contains(r.Table(), "clsact") {
		t.Errorf("in the narrow table\n%s", r.Table())
	}
	lines := strings.Split(r.WideTable(), "\n")
	if !strings.Contains(lines[0], "REASON    ENGINE  PACKETS") || !strings.Contains(lines[1], "Duration  clsact") || strings.Contains(lines[2], "clsact") {
		t.Errorf("wide\n%s", r.WideTable())
	}
}
