package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Parts of the refusals in the matrix; yes means that the request is accepted.
const (
	yes       = ""
	noVerb    = "capture"                // the webhook names the missing verb
	noWrite   = "cannot create resource" // RBAC on the kind itself
	notAHub   = "hub"
	noNode    = "nodes"
	forbidden = "denied"
	notFound  = "not found"
)

// rights maps each user to the expected answer per target. The users are bound in the namespaces own, foreign and hub
// to the role of their name. Exceptions: "halfadmin" is admin in own and hub and has nothing in foreign, "nodeadmin"
// may also capture on nodes, and "nobody" has no rights.
var rights = map[string]map[string]string{
	"admin":     {"own": yes, "foreign": notAHub, "hub": yes, "hub to own": yes, "host network": noNode, "the operator": forbidden, "unknown there": notFound},
	"halfadmin": {"own": yes, "foreign": notAHub, "hub": noVerb, "hub to own": yes, "host network": noNode, "the operator": forbidden, "unknown there": noVerb},
	"nodeadmin": {"own": yes, "foreign": notAHub, "hub": noVerb, "hub to own": yes, "host network": yes, "the operator": forbidden, "unknown there": noVerb},
	"edit":      {"own": noVerb, "foreign": notAHub, "hub": noVerb, "hub to own": noVerb, "host network": noVerb, "the operator": forbidden, "unknown there": noVerb},
	"view":      {"own": noWrite, "foreign": noWrite, "hub": noWrite, "hub to own": noWrite, "host network": noWrite, "the operator": noWrite, "unknown there": noWrite},
	"nobody":    {"own": noWrite, "foreign": noWrite, "hub": noWrite, "hub to own": noWrite, "host network": noWrite, "the operator": noWrite, "unknown there": noWrite},
}

// wanted is a capture that a user tries to create: in the namespace from, with the target in spec.
type wanted struct {
	from string
	spec sondev1.PacketCaptureSpec
}

// RightsMatrix asserts users x targets. A dry run sends each cell through the real API server, where RBAC and the
// webhook decide. The rights of admin, edit and view depend on how Sonde was installed.
func RightsMatrix(t *testing.T) {
	t.Helper()
	targets := rightsTargets(t)
	for user, cells := range rights {
		for target, wantErr := range cells {
			t.Run(user+"/"+target, func(t *testing.T) {
				tc := targets[target]
				pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-", Namespace: tc.from}, Spec: tc.spec}
				err := As(t, user).Create(t.Context(), pc, client.DryRunAll)
				switch {
				case wantErr == yes && err != nil:
					t.Errorf("refused with %v, want it accepted", err)
				case wantErr != yes && err == nil:
					t.Errorf("accepted, want a refusal that contains %q", wantErr)
				case wantErr != yes && !strings.Contains(err.Error(), wantErr):
					t.Errorf("refused with %v, want a refusal that contains %q", err, wantErr)
				}
			})
		}
	}
}

// rightsTargets makes the namespaces, users and workloads of the matrix.
func rightsTargets(t *testing.T) map[string]wanted {
	t.Helper()
	own, foreign := Namespace(t, nil), Namespace(t, nil)
	hub := Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	for _, ns := range []string{own, foreign} {
		Deployment(t, ns, "web", 1, "idle")
	}
	hostSpec := PodSpec("idle")
	hostSpec.HostNetwork = true
	Pod(t, own, "on-the-node", hostSpec)
	for _, role := range []string{"admin", "edit", "view"} {
		for _, ns := range []string{own, foreign, hub} {
			Bind(t, ns, role, role)
		}
	}
	for _, ns := range []string{own, hub} {
		Bind(t, ns, "halfadmin", "admin")
		Bind(t, ns, "nodeadmin", "admin")
	}
	Bind(t, "", "nodeadmin", "sonde-capture-nodes")
	return map[string]wanted{
		"own":           {from: own, spec: sondev1.PacketCaptureSpec{TargetDeployment: "web"}},
		"foreign":       {from: own, spec: sondev1.PacketCaptureSpec{TargetNamespace: foreign, TargetDeployment: "web"}},
		"hub":           {from: hub, spec: sondev1.PacketCaptureSpec{TargetNamespace: foreign, TargetDeployment: "web"}},
		"hub to own":    {from: hub, spec: sondev1.PacketCaptureSpec{TargetNamespace: own, TargetDeployment: "web"}},
		"host network":  {from: own, spec: sondev1.PacketCaptureSpec{TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "on-the-node"}}},
		"the operator":  {from: hub, spec: sondev1.PacketCaptureSpec{TargetNamespace: OperatorNamespace, TargetDeployment: "sonde-manager"}},
		"unknown there": {from: hub, spec: sondev1.PacketCaptureSpec{TargetNamespace: foreign, TargetDeployment: "no-such"}},
	}
}
