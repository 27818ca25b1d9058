package rights_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/rights"
)

const (
	repo     = "../.."
	operator = "sonde-system"
)

// installs returns the rights in the roles of each way to install.
func installs(t *testing.T) map[string][]rights.Right {
	t.Helper()
	kustomize, err := rights.Read(kustomized(t))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]rights.Right{"kustomize": kustomize, "bundle": bundle(t)}
}

// unbound returns the roles that the install binds to nobody. Both ways to install have the same roles and bindings
// (TestBundleGivesWhatKustomizeGives; hack/bundle refuses a ClusterRoleBinding for another subject than the manager).
func unbound(t *testing.T) map[string]bool {
	t.Helper()
	roles, err := rights.Unbound(kustomized(t))
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

// kustomized returns the objects of an install by kustomize.
func kustomized(t *testing.T) []byte {
	t.Helper()
	// go test caches results by the files that the test itself opens, so open all inputs of kustomize here.
	if err := filepath.WalkDir(repo+"/config", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", "config/default")
	cmd.Dir = repo
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stream, err := cmd.Output()
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr.String())
	}
	return stream
}

// bundle returns the rights in the bundle's objects, and those that OLM derives from the ClusterServiceVersion's
// permissions.
func bundle(t *testing.T) []rights.Right {
	t.Helper()
	files, err := filepath.Glob(repo + "/bundle/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var all []rights.Right
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		found, err := rights.Read(b)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for i := range found {
			if strings.HasPrefix(found[i].Role, "Role/") {
				found[i].Namespace = operator // a bundle does not name its namespace
			}
		}
		all = append(all, found...)
		all = append(all, permissions(t, f, b)...)
	}
	return all
}

func permissions(t *testing.T, file string, b []byte) []rights.Right {
	t.Helper()
	if !strings.HasSuffix(file, ".clusterserviceversion.yaml") {
		return nil
	}
	var csv operatorsv1alpha1.ClusterServiceVersion
	if err := yaml.Unmarshal(b, &csv); err != nil {
		t.Fatal(err)
	}
	var all []rights.Right
	for _, p := range csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions {
		all = append(all, rights.Expand("ClusterRole/"+p.ServiceAccountName, "", p.Rules)...)
	}
	for _, p := range csv.Spec.InstallStrategy.StrategySpec.Permissions {
		all = append(all, rights.Expand("Role/"+p.ServiceAccountName, operator, p.Rules)...)
	}
	if len(all) == 0 {
		t.Fatalf("%s: no permissions: has its shape changed?", file)
	}
	return all
}

// No role contains a wildcard, or a verb that turns existing rights into more.
func TestNoWildcardAndNoEscalation(t *testing.T) {
	t.Parallel()
	for install, all := range installs(t) {
		for _, r := range all {
			if strings.Contains(r.Verb+r.Group+r.Resource, "*") || rights.Escalates(r.Verb) {
				t.Errorf("%s: %s, want no wildcard and no escalation", install, r.Key())
			}
		}
	}
}

// Both ways to install grant the same rights, so that tests of one also cover the other.
func TestBundleGivesWhatKustomizeGives(t *testing.T) {
	t.Parallel()
	lines := map[string][]string{}
	for install, all := range installs(t) {
		keys := map[string]bool{}
		for _, r := range all {
			keys[r.Key()] = true
		}
		lines[install] = slices.Sorted(maps.Keys(keys))
	}
	if diff := cmp.Diff(lines["kustomize"], lines["bundle"]); diff != "" {
		t.Errorf("rights (-kustomize +bundle):\n%s", diff)
	}
}

// docs/security.md lists every granted right that equals root, and no others. An install does not grant the rights of
// unbound roles; the next test is about them.
func TestEveryRightEqualToRootIsDocumented(t *testing.T) {
	t.Parallel()
	documented, notGranted := table(t, "## Rights that equal root"), unbound(t)
	for install, all := range installs(t) {
		found := map[string]bool{}
		for _, r := range all {
			if notGranted[r.Role] {
				continue
			}
			if why := rights.Root(r, operator); why != "" {
				found[r.Key()] = true
				if !documented[r.Key()] {
					t.Errorf("%s: %s\nequals root (%s): remove it, or add it to docs/security.md with its reason", install, r.Key(), why)
				}
			}
		}
		for line := range documented {
			if !found[line] {
				t.Errorf("docs/security.md lists %q, which %s does not grant: remove the row", line, install)
			}
		}
	}
}

// An admin binds these roles. In a namespace of users none of them equals root there. docs/security.md lists the rights that
// equal root if the role is bound for all namespaces, and no others.
func TestUnboundRolesEqualRootOnlyForAllNamespaces(t *testing.T) {
	t.Parallel()
	roles := unbound(t)
	want := []string{
		"ClusterRole/sonde-capture-nodes", "ClusterRole/sonde-collector", "ClusterRole/sonde-fluentpvc", "ClusterRole/sonde-inject", "ClusterRole/sonde-intercept",
		"ClusterRole/sonde-metrics-reader", "ClusterRole/sonde-trace-nodes",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(roles))); diff != "" {
		t.Fatalf("roles that the install does not bind (-want +got):\n%s", diff)
	}
	documented := table(t, "## Roles that equal root if they are bound for all namespaces")
	for install, all := range installs(t) {
		found := map[string]bool{}
		for _, r := range all {
			if !roles[r.Role] {
				continue
			}
			if why := rights.Root(r, operator); why != "" {
				found[r.Key()] = true
			}
			r.Namespace = "shop"
			if why := rights.Root(r, operator); why != "" {
				t.Errorf("%s: %s\nequals root (%s): a namespace's admin must not be able to bind it", install, r.Key(), why)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(found))); diff != "" {
			t.Errorf("%s: rights that equal root for all namespaces (-docs/security.md +roles):\n%s", install, diff)
		}
	}
}

// docs/security.md lists every installed ClusterRole that grants a verb of Sonde's own, and the verb.
func TestEveryVerbOfSondesOwnIsDocumented(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(repo + "/docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"capture nodes sonde-capture-nodes", "capture pods sonde-capture", "inject pods sonde-inject", "intercept pods sonde-intercept", "trace nodes sonde-trace-nodes", "trace pods sonde-trace",
	}
	for install, all := range installs(t) {
		var got []string
		for _, r := range all {
			if !slices.Contains([]string{sondev1.VerbCapture, sondev1.VerbTrace, sondev1.VerbInject, sondev1.VerbIntercept}, r.Verb) {
				continue
			}
			role := strings.TrimPrefix(r.Role, "ClusterRole/")
			got = append(got, r.Verb+" "+r.Resource+" "+role)
			if row := "| `" + role + "` | `" + r.Verb + "` on `" + r.Resource + "`"; !strings.Contains(string(b), row) {
				t.Errorf("%s: %s is not in docs/security.md, want a row that begins %q", install, r.Key(), row)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: verbs of Sonde's own (-want +got):\n%s", install, diff)
		}
	}
}

// table reads the rights from a table "| role | verb | resource | only the object | namespace | ..." below a heading. A
// cell may list several verbs.
func table(t *testing.T, heading string) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(repo + "/docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/security.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	lines := map[string]bool{}
	for row := range strings.Lines(section) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(row), "`", ""), "|")
		if len(cells) < 7 || !strings.Contains(cells[1], "Role/") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		resource, group, _ := strings.Cut(cells[3], ".")
		for verb := range strings.SplitSeq(cells[2], ", ") {
			r := rights.Right{Role: cells[1], Verb: verb, Resource: resource, Group: group, Name: cells[4], Namespace: cells[5]}
			lines[r.Key()] = true
		}
	}
	if len(lines) == 0 {
		t.Fatalf("no rows below %q: has the table's shape changed?", heading)
	}
	return lines
}

// Root classifies rights of each kind. A gap in its rules would otherwise make a dangerous right look safe.
func TestRoot(t *testing.T) {
	t.Parallel()
	in := func(ns, verb, group, resource, name string) rights.Right {
		return rights.Right{Role: "Role/x", Namespace: ns, Verb: verb, Group: group, Resource: resource, Name: name}
	}
	cases := map[string]struct {
		right rights.Right
		want  bool
	}{
		"jobs in the operator's namespace":   {in(operator, "create", "batch", "jobs", ""), true},
		"jobs elsewhere":                     {in("shop", "create", "batch", "jobs", ""), false},
		"jobs everywhere":                    {in("", "create", "batch", "jobs", ""), true},
		"jobs, read":                         {in(operator, "list", "batch", "jobs", ""), false},
		"exec into a probe":                  {in(operator, "create", "", "pods/exec", ""), true},
		"a webhook by name":                  {in("", "patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "sonde"), true},
		"a webhook, read":                    {in("", "get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""), false},
		"an SCC by name":                     {in("", "patch", "security.openshift.io", "securitycontextconstraints", "sonde-probe"), true},
		"an SCC, used in a namespace":        {in(operator, "use", "security.openshift.io", "securitycontextconstraints", ""), true},
		"Secrets of the operator":            {in(operator, "list", "", "secrets", ""), true},
		"one Secret, updated":                {in(operator, "update", "", "secrets", "sonde-webhook-cert"), false},
		"the kubelet":                        {in("", "get", "", "nodes/proxy", ""), true},
		"nodes, read":                        {in("", "get", "", "nodes", ""), false},
		"impersonation":                      {in("", "impersonate", "", "users", ""), true},
		"a finer verb of impersonation":      {in("shop", "impersonate-on:serviceaccount:create", "batch", "jobs", ""), true},
		"bind":                               {in("", "bind", "rbac.authorization.k8s.io", "clusterroles", "x"), true},
		"a wildcard among verbs":             {in("shop", "*", "", "pods", ""), true},
		"a wildcard among resources":         {in("shop", "get", "", "*", ""), true},
		"a validating policy by name":        {in("", "patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", "sonde-fluentpvc"), false},
		"a mutating policy by name":          {in("", "patch", "admissionregistration.k8s.io", "mutatingadmissionpolicies", "x"), true},
		"claims everywhere":                  {in("", "create", "", "persistentvolumeclaims", ""), false},
		"own kinds":                          {in("", "create", "monitoring.openshift.tpg", "packetcaptures", ""), false},
		"a path of the API server":           {in("", "get", "", "/metrics", ""), false},
		"tokens of the operator's accounts":  {in(operator, "create", "", "serviceaccounts/token", ""), true},
		"labels of namespaces":               {in("", "patch", "", "namespaces", ""), true},
		"a Pod's ephemeral containers":       {in(operator, "patch", "", "pods/ephemeralcontainers", ""), true},
		"a Deployment in the own namespace":  {in(operator, "patch", "apps", "deployments", ""), true},
		"the certificate of the API's nodes": {in("", "approve", "certificates.k8s.io", "signers", ""), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := rights.Root(tc.right, operator); (got != "") != tc.want {
				t.Errorf("Root(%s) = %q, want a reason: %v", tc.right.Key(), got, tc.want)
			}
		})
	}
}

// Removing one right keeps all others, whichever rule contained them.
func TestWithout(t *testing.T) {
	t.Parallel()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "secrets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
	all := rights.Expand("Role/r", "ns", rules)
	if len(all) != 7 {
		t.Fatalf("%d rights, want 7: %v", len(all), all)
	}
	for i, gone := range all {
		want := slices.Delete(slices.Clone(all), i, i+1)
		if diff := cmp.Diff(want, rights.Expand("Role/r", "ns", rights.Without(rules, gone))); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", gone.Key(), diff)
		}
	}
}

// Only a ClusterRole without a binding and without aggregation is unbound.
func TestUnbound(t *testing.T) {
	t.Parallel()
	stream := `
{kind: ClusterRole, metadata: {name: bound}}
---
{kind: ClusterRoleBinding, metadata: {name: x}, roleRef: {kind: ClusterRole, name: bound}}
---
{kind: ClusterRole, metadata: {name: bound-in-a-namespace}}
---
{kind: RoleBinding, metadata: {name: x, namespace: y}, roleRef: {kind: ClusterRole, name: bound-in-a-namespace}}
---
{kind: ClusterRole, metadata: {name: aggregated, labels: {rbac.authorization.k8s.io/aggregate-to-admin: "true"}}}
---
{kind: ClusterRole, metadata: {name: free, labels: {a: b}}}
---
{kind: RoleBinding, metadata: {name: x, namespace: y}, roleRef: {kind: Role, name: free}}
---
{kind: Role, metadata: {name: bound}}
`
	got, err := rights.Unbound([]byte(stream))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"ClusterRole/free": true}, got); diff != "" {
		t.Errorf("unbound (-want +got):\n%s", diff)
	}
	if _, err := rights.Unbound([]byte("kind: [")); err == nil {
		t.Error("a broken document passes")
	}
}
