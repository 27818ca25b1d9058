//go:build e2e

package trace

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A program has thousands of files with long paths open, and hundreds of children with their own descriptors. The probe stays
// within its memory limit, the trace is complete, and its last line counts the names that the probe had no memory for. The
// control is the same program with few files and children: no name is missing.
func TestAttackTracerMemory(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	program := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hoard-", Namespace: ns},
		BinaryData: map[string][]byte{"hoard": staticProgram(t, "../../../agents/trace/testdata/hoard.c")},
	}
	if err := cluster.Admin.Create(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files, children int
		missing         bool
	}{
		"attack":  {4000, 600, true},
		"control": {40, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := cluster.Pod(t, ns, name, withProgram(program.Name, corev1.SeccompProfileTypeRuntimeDefault))
			tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{
				TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: p.Name}, Duration: "5m", Events: []sondev1.TraceGroup{sondev1.TraceFile},
			})
			if out, err := cluster.Exec(t.Context(), p, "/program/hoard", "/dev/shm/hoard", strconv.Itoa(tc.files), strconv.Itoa(tc.children)); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			cluster.Stop(t, tr)
			e := cluster.Entry(t, tr, p.Name)
			if tr.Status.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonStopped {
				t.Fatalf("phase %s, entry %+v; want Completed and Stopped", tr.Status.Phase, e)
			}
			_, records, end := cluster.ReadTrace(t, cluster.ResultFile(t, tr, cluster.GrantResults(t, cluster.Admin, tr), &e))
			if end == nil || (end.Unnamed > 0) != tc.missing {
				t.Fatalf("account %+v; names are missing: want %t", end, tc.missing)
			}
			opened, closed := 0, 0
			for _, r := range records {
				switch {
				case string(r.Comm) != "hoard":
				case r.Call == "openat" && len(r.Path) > 1000:
					opened++
				case r.Call == "close" && len(r.Path) > 1000:
					closed++
				}
			}
			t.Logf("%d events, lost: %v, %d names missing; %d opened with their paths, %d closed", e.Events, e.Lost, end.Unnamed, opened, closed)
			if e.LostEvents() == 0 && (opened != tc.files || !tc.missing && closed != tc.children) {
				t.Errorf("%d files were opened and %d closed with their paths, want %d and %d", opened, closed, tc.files, tc.children)
			}
		})
	}
}
