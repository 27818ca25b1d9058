//go:build e2e

package trace

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// The right to capture packets does not include tracing, nor the other way round. Neither includes the node's
// processes.
func TestRightsOfTraces(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "idle")
	seesAll := cluster.PodSpec("idle")
	seesAll.HostPID = true
	cluster.Pod(t, ns, "sees-all", seesAll)
	for _, user := range []string{"capturer", "tracer", "nodetracer"} {
		cluster.Bind(t, ns, user, "sonde-edit")
	}
	cluster.Bind(t, ns, "capturer", "sonde-capture")
	cluster.Bind(t, ns, "tracer", "sonde-trace")
	cluster.Bind(t, ns, "nodetracer", "sonde-trace")
	cluster.Bind(t, "", "nodetracer", "sonde-trace-nodes")
	onNode := &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "sees-all"}
	of := metav1.ObjectMeta{GenerateName: "m-", Namespace: ns}
	for name, tc := range map[string]struct {
		user   string
		object client.Object
		want   string // part of the refusal; empty if accepted
	}{
		"a tracer traces":              {"tracer", &sondev1.Trace{ObjectMeta: of, Spec: sondev1.TraceSpec{TargetDeployment: "web"}}, ""},
		"a capturer traces":            {"capturer", &sondev1.Trace{ObjectMeta: of, Spec: sondev1.TraceSpec{TargetDeployment: "web"}}, "trace"},
		"a tracer captures":            {"tracer", &sondev1.PacketCapture{ObjectMeta: of, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "web"}}, "capture"},
		"a tracer traces the node":     {"tracer", &sondev1.Trace{ObjectMeta: of, Spec: sondev1.TraceSpec{TargetRef: onNode}}, "nodes"},
		"a nodetracer traces the node": {"nodetracer", &sondev1.Trace{ObjectMeta: of, Spec: sondev1.TraceSpec{TargetRef: onNode}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := cluster.As(t, tc.user).Create(t.Context(), tc.object, client.DryRunAll)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused with %v, want it accepted", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got error %v, want a refusal with %q", err, tc.want)
			}
		})
	}
}

// With only the capabilities that it needs, a probe traces and accounts for every call.
func TestPrivilegeCapabilitiesTraces(t *testing.T) {
	cluster.ProbePrivilege(t, privilege.Capabilities)
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "idle"), 1)[0]
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	cluster.UseFiles(t, &p)
	cluster.Stop(t, tr)
	if tr.Status.Phase != sondev1.PhaseCompleted {
		t.Fatalf("phase %s, pods %+v; want Completed", tr.Status.Phase, tr.Status.Pods)
	}
	wantExactly(t, tr, cluster.GrantResults(t, cluster.Admin, tr), p.Name, "another")
}
