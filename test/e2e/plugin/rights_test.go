//go:build e2e

package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// right is one verb on one resource.
type right struct{ verb, resource string }

// group of the right's resource.
func (r right) group() string {
	if r.resource == "pods" || r.resource == "services" {
		return ""
	}
	return sondev1.GroupVersion.Group
}

// allRights are what a user needs in one namespace for everything that the plugin does with packets there.
var allRights = []right{
	{"create", "packetcaptures"},
	{"get", "packetcaptures"},
	{"list", "packetcaptures"},
	{"watch", "packetcaptures"},
	{"patch", "packetcaptures"},
	{"delete", "packetcaptures"},
	{"create", "resultaccesses"},
	{"delete", "resultaccesses"},
	{"capture", "pods"},
	{"list", "pods"},
	{"list", "services"},
}

// A user with rights in one namespace captures, follows and downloads. Where one right is missing, the plugin names what to ask for.
func TestPluginNamesMissingRights(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)
	ended := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.Stop(t, ended)
	running := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	const edit = "ClusterRole sonde-edit in namespace %s"
	for name, tc := range map[string]struct {
		without right
		command []string
		want    string // %s is the namespace
		works   bool
	}{
		"capture":                        {command: []string{"capture", "sink", "--for", "1s"}, works: true},
		"download":                       {command: []string{"download", ended.Name}, works: true},
		"capture without create":         {without: right{"create", "packetcaptures"}, command: []string{"capture", "sink", "--for", "1s"}, want: edit},
		"capture without capture":        {without: right{"capture", "pods"}, command: []string{"capture", "sink", "--for", "1s"}, want: "ClusterRole sonde-capture"},
		"capture without watch":          {without: right{"watch", "packetcaptures"}, command: []string{"capture", "sink", "--for", "1s"}, want: edit},
		"capture without tokens":         {without: right{"create", "resultaccesses"}, command: []string{"capture", "sink", "--for", "1s"}, want: edit},
		"download without get":           {without: right{"get", "packetcaptures"}, command: []string{"download", ended.Name}, want: edit},
		"download without tokens":        {without: right{"create", "resultaccesses"}, command: []string{"download", ended.Name}, want: edit},
		"download without list of Pods":  {without: right{"list", "pods"}, command: []string{"download", ended.Name}, want: "resources: [pods, services], verbs: [list]", works: true},
		"download without list of names": {without: right{"list", "services"}, command: []string{"download", ended.Name}, want: "resources: [pods, services], verbs: [list]", works: true},
		"follow without get":             {without: right{"get", "packetcaptures"}, command: []string{"follow", running.Name}, want: edit},
		"follow without tokens":          {without: right{"create", "resultaccesses"}, command: []string{"follow", running.Name}, want: edit},
		"get without list":               {without: right{"list", "packetcaptures"}, command: []string{"get"}, want: edit},
		"stop without patch":             {without: right{"patch", "packetcaptures"}, command: []string{"stop", running.Name}, want: edit},
		"delete without delete":          {without: right{"delete", "packetcaptures"}, command: []string{"delete", running.Name}, want: edit},
	} {
		t.Run(name, func(t *testing.T) {
			user := "user-" + strings.ReplaceAll(strings.ToLower(name), " ", "-")
			grant(t, ns, user, slices.DeleteFunc(slices.Clone(allRights), func(r right) bool { return r == tc.without }))
			args := slices.Concat(tc.command, []string{"-n", ns, "--as", user, "--as-group", "system:authenticated"})
			if tc.command[0] == "capture" || tc.command[0] == "download" {
				args = append(args, "-o", filepath.Join(t.TempDir(), "saved.pcapng"))
			}
			cmd, out, errOut := cluster.StartPlugin(t, args...)
			err := cmd.Wait()
			said := out.String() + errOut.String()
			if (err == nil) != tc.works {
				t.Errorf("%v\n%s", err, said)
			}
			if want := strings.ReplaceAll(tc.want, "%s", ns); !strings.Contains(said, want) {
				t.Errorf("want %q in\n%s", want, said)
			}
		})
	}
}

// grant gives rights in a namespace to a user, and waits until the API server knows.
func grant(t *testing.T, ns, user string, rights []right) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user}}
	for _, r := range rights {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.group()}, Resources: []string{r.resource}, Verbs: []string{r.verb}})
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	cluster.Create(t, role)
	cluster.Create(t, binding)
	last := rights[len(rights)-1]
	cluster.Eventually(t, 20*time.Second, "the rights count", func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: last.verb, Group: last.group(), Resource: last.resource},
		}}
		if err := cluster.Admin.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("no %s on %s yet", last.verb, last.resource)
		}
		return nil
	})
}
