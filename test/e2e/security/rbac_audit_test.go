//go:build e2e

package security

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/rights"
)

// request holds the fields of an audit log line about one request of the manager's.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Group       string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	StageTimestamp time.Time `json:"stageTimestamp"`
}

// requests returns the manager's requests that ended within a period.
func requests(t *testing.T, from, to time.Time) []request {
	t.Helper()
	f, err := os.Open(cluster.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var found []request
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.User.Username == cluster.ManagerUser && !r.StageTimestamp.Before(from) && r.StageTimestamp.Before(to) {
			found = append(found, r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// needs reports whether a right permits a request.
func (r request) needs(right rights.Right) bool {
	resource := r.Object.Resource
	if r.Object.Subresource != "" {
		resource += "/" + r.Object.Subresource
	}
	return r.Verb == right.Verb && r.Object.Group == right.Group && resource == right.Resource &&
		(right.Namespace == "" || r.Object.Namespace == right.Namespace) && (right.Name == "" || r.Object.Name == right.Name)
}

// managerRights returns the live rules of the manager's two roles, one right at a time.
func managerRights(t *testing.T) []rights.Right {
	t.Helper()
	var clusterRole rbacv1.ClusterRole
	var own rbacv1.Role
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: "sonde-manager"}, &clusterRole); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}, &own); err != nil {
		t.Fatal(err)
	}
	return append(rights.Expand("ClusterRole/sonde-manager", "", clusterRole.Rules), rights.Expand("Role/sonde-manager", cluster.OperatorNamespace, own.Rules)...)
}
