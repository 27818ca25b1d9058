//go:build e2e

package trace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A killed tracer leaves complete lines, which its keeper counts, and nothing in the kernel. The status says
// Incomplete.
func TestTraceKilled(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "idle"), 1)[0]
	programs := tracePrograms(t)
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	cluster.UseFiles(t, &p)
	cluster.KillProbe(t, &p)
	cluster.Eventually(t, 30*time.Second, "no BPF program left", func(context.Context) error {
		if left := newPrograms(t, programs); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	cluster.Eventually(t, 30*time.Second, "the killed tracer's Pod final", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		if e := cluster.Entry(t, tr, p.Name); e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonKilled {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	cluster.Stop(t, tr)
	e := cluster.Entry(t, tr, p.Name)
	header, records, end := cluster.ReadTrace(t, cluster.ResultFile(t, tr, cluster.GrantResults(t, cluster.Admin, tr), &e))
	if header == nil || end != nil || int64(len(records)) != e.Events || tr.Status.Phase != sondev1.PhaseIncomplete {
		t.Errorf("phase %s, entry %+v; header %+v, %d records, account %+v; want Incomplete, a header, the records of the status and no account", tr.Status.Phase, e, header, len(records), end)
	}
	// Missing are at most the calls since the tracer last read its rings, a twentieth of a second before.
	if uses := usesOf(records, cluster.FilesOf(p.Name)); uses["openat"] == 0 {
		t.Errorf("the file has no call of the Pod, want some: %v", uses)
	}
}
