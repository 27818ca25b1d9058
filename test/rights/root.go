package rights

import (
	"slices"
	"strings"
)

// danger is a right that equals root on a node, by itself or together with rights that every user has.
type danger struct {
	verbs     []string
	group     string
	resources []string
	// inOperator also counts the right when it applies only to the operator's namespace. In other namespaces such a
	// right is ordinary, because admission restricts Pods there.
	inOperator bool
	why        string
}

var (
	anyWrite = []string{"create", "update", "patch"}
	anyRead  = []string{"get", "list", "watch"}
)

// dangers is the list of rules that classify rights. The reasons are for readers of a failed test; docs/security.md
// covers Sonde's own rights. A ValidatingAdmissionPolicy is not among them: it can refuse requests, but it changes none,
// and shows objects to nobody.
var dangers = []danger{
	{verbs: []string{"use"}, group: "security.openshift.io", resources: []string{"securitycontextconstraints"}, inOperator: true, why: "admits privileged Pods"},
	{verbs: anyWrite, group: "security.openshift.io", resources: []string{"securitycontextconstraints"}, why: "an SCC names those whom it admits"},
	{verbs: anyWrite, group: "", resources: []string{"pods", "pods/ephemeralcontainers", "replicationcontrollers"}, inOperator: true, why: "a Pod may name the ServiceAccount of the probes"},
	{verbs: anyWrite, group: "apps", resources: []string{"deployments", "replicasets", "statefulsets", "daemonsets"}, inOperator: true, why: "makes Pods"},
	{verbs: anyWrite, group: "batch", resources: []string{"jobs", "cronjobs"}, inOperator: true, why: "makes Pods"},
	{verbs: []string{"create", "get"}, group: "", resources: []string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy"}, inOperator: true, why: "leads into a probe"},
	{verbs: []string{"create"}, group: "", resources: []string{"serviceaccounts/token"}, inOperator: true, why: "a token of the manager, or of another operator"},
	{verbs: append([]string{"create", "update", "patch"}, anyRead...), group: "", resources: []string{"secrets"}, inOperator: true, why: "tokens of ServiceAccounts are Secrets, and making one makes a token; the stamps' key is one"},
	{verbs: anyWrite, group: "rbac.authorization.k8s.io", resources: []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}, inOperator: true, why: "hands on what one has"},
	{verbs: anyWrite, group: "admissionregistration.k8s.io", resources: []string{"mutatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, why: "changes any Pod of the cluster on its way"},
	{verbs: anyWrite, group: "admissionregistration.k8s.io", resources: []string{"validatingwebhookconfigurations"}, why: "is shown each object that is written, Secrets too"},
	{verbs: anyWrite, group: "apiregistration.k8s.io", resources: []string{"apiservices"}, why: "answers in the API server's place"},
	{verbs: anyWrite, group: "apiextensions.k8s.io", resources: []string{"customresourcedefinitions"}, why: "a conversion webhook rewrites objects that others act upon"},
	{verbs: anyWrite, group: "", resources: []string{"namespaces"}, why: "takes off the labels that pod security goes by"},
	{verbs: append([]string{"create"}, anyRead...), group: "", resources: []string{"nodes/proxy"}, why: "the kubelet runs commands in any container"},
	{verbs: anyWrite, group: "", resources: []string{"nodes", "nodes/status", "persistentvolumes", "pods/binding"}, why: "moves Pods, and mounts a node's folders"},
	{verbs: []string{"update", "patch", "approve", "sign"}, group: "certificates.k8s.io", resources: []string{"certificatesigningrequests", "certificatesigningrequests/approval", "signers"}, why: "makes one a node"},
	{verbs: anyWrite, group: "operators.coreos.com", resources: []string{"subscriptions", "clusterserviceversions", "catalogsources"}, why: "installs with any right"},
}

// Escalates reports whether a verb turns existing rights into more. Newer API servers have finer verbs for
// impersonation: "impersonate:serviceaccount", "impersonate-on:user-info:create".
func Escalates(verb string) bool {
	return verb == "escalate" || verb == "bind" || strings.HasPrefix(verb, "impersonate")
}

// Root returns the reason why a right equals root, given the operator's namespace; empty if it does not.
func Root(r Right, operator string) string {
	if r.Verb == "*" || r.Group == "*" || r.Resource == "*" {
		return "a wildcard includes every resource below it, also resources that are added later"
	}
	if Escalates(r.Verb) {
		return "lets one become or give what one is not"
	}
	for _, d := range dangers {
		verb := slices.Contains(d.verbs, r.Verb)
		resource := d.group == r.Group && slices.Contains(d.resources, r.Resource)
		// A namespaced right to a cluster-scoped resource grants nothing, except for those marked inOperator.
		where := r.Namespace == "" || d.inOperator && r.Namespace == operator
		if verb && resource && where && !harmlessUpdate(r) {
			return d.why
		}
	}
	return ""
}

// harmlessUpdate reports a write to one named Secret, which gives no token.
func harmlessUpdate(r Right) bool {
	return r.Resource == "secrets" && r.Name != "" && (r.Verb == "update" || r.Verb == "patch")
}
