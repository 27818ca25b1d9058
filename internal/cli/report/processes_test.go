package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestProcessNotes(t *testing.T) {
	named := &v1alpha1.ProcessCounts{Named: 7}
	old, sockets := &v1alpha1.ProcessCounts{Message: "old kernel"}, &v1alpha1.ProcessCounts{Message: "packet sockets"}
	for name, tc := range map[string]struct {
		pods []v1alpha1.PodResult
		want []string
	}{
		"not wanted": {pods: []v1alpha1.PodResult{{Name: "web-1"}}},
		"named":      {pods: []v1alpha1.PodResult{{Name: "web-1", Processes: named}}},
		"each reason once": {
			pods: []v1alpha1.PodResult{
				{Name: "web-1", Processes: old}, {Name: "web-2", Processes: sockets}, {Name: "web-3", Processes: old}, {Name: "web-4", Processes: named},
			},
			want: []string{"processes are not named: old kernel (web-1 and 1 more)", "processes are not named: packet sockets (web-2)"},
		},
		"some": {
			pods: []v1alpha1.PodResult{{Name: "web-1", Processes: &v1alpha1.ProcessCounts{Named: 7, Message: "many sockets"}}},
			want: []string{"not all processes are named: many sockets (web-1)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, processNotes(tc.pods)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
