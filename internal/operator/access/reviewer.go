package access

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Names of the installed ClusterRoles that grant a verb: rolePrefix and the verb, for nodes with roleNodes at the end.
const (
	rolePrefix = "sonde-"
	roleNodes  = "-nodes"
)

const (
	resourceNodes = "nodes"
	resourceJobs  = "jobs"
)

// roleEdit of Kubernetes may create Jobs.
const roleEdit = "edit"

// Decision of a review. Without Allowed, Reason tells the user which right is missing and how an admin grants it.
type Decision struct {
	Allowed bool
	Reason  string
}

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Reviewer creates SubjectAccessReviews. They are never stored, so a review changes nothing.
type Reviewer struct {
	client client.Client
}

// NewReviewer returns a Reviewer that asks through c.
func NewReviewer(c client.Client) *Reviewer { return &Reviewer{client: c} }

// ReviewPods reviews one of Sonde's verbs on pods in namespace, or on the pods of all namespaces if it is empty. An error means
// that the API server did not answer, and is never a refusal.
func (r *Reviewer) ReviewPods(ctx context.Context, verb string, who Requester, namespace string) (Decision, error) {
	return r.review(ctx, who, authorizationv1.ResourceAttributes{
		Verb: verb, Version: "v1", Resource: "pods", Namespace: namespace,
	})
}

// ReviewNodes reviews the verb on nodes, for a Pod that shares a namespace with its node. For example, a capture of one
// hostNetwork Pod contains the packets of all hostNetwork Pods of the node.
func (r *Reviewer) ReviewNodes(ctx context.Context, verb string, who Requester) (Decision, error) {
	return r.review(ctx, who, authorizationv1.ResourceAttributes{
		Verb: verb, Version: "v1", Resource: resourceNodes,
	})
}

// ReviewJobs reviews the right to create Jobs in namespace. With it a user can run any Pod there, under any ServiceAccount of it.
func (r *Reviewer) ReviewJobs(ctx context.Context, who Requester, namespace string) (Decision, error) {
	return r.review(ctx, who, authorizationv1.ResourceAttributes{Verb: "create", Group: "batch", Version: "v1", Resource: resourceJobs, Namespace: namespace})
}

func (r *Reviewer) review(ctx context.Context, who Requester, what authorizationv1.ResourceAttributes) (Decision, error) {
	if who.Username == "" {
		// The API server would refuse such a review as malformed.
		return Decision{Reason: "the requester has no name: log in and create the resource again"}, nil
	}
	spec := who.spec()
	spec.ResourceAttributes = &what
	sar := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := r.client.Create(ctx, sar); err != nil {
		return Decision{}, fmt.Errorf("review verb %s on %s for %q: %w", what.Verb, what.Resource, short(who.Username), err)
	}
	if sar.Status.Allowed && !sar.Status.Denied {
		return Decision{Allowed: true}, nil
	}
	return Decision{Reason: refusal(who, what, sar.Status.EvaluationError)}, nil
}

// refusal names the missing right and the command with which an admin grants it.
func refusal(who Requester, what authorizationv1.ResourceAttributes, evaluation string) string {
	where, role, grant := "in the cluster", rolePrefix+what.Verb, "kubectl create clusterrolebinding NAME"
	switch {
	case what.Resource == resourceNodes:
		role += roleNodes
	case what.Namespace == "":
		where = "in all namespaces"
	default:
		where = "in namespace " + short(what.Namespace)
		grant = "kubectl create rolebinding NAME -n " + short(what.Namespace)
	}
	if what.Resource == resourceJobs {
		role = roleEdit
	}
	msg := fmt.Sprintf("user %q lacks the verb %s on %s %s: ask an admin for ClusterRole %s (%s --clusterrole=%s --user=%s)",
		short(who.Username), what.Verb, what.Resource, where, role, grant, role, quote(short(who.Username)))
	if evaluation != "" {
		msg += "; the authorizer reported: " + short(evaluation)
	}
	return msg
}

// short bounds a text of a user or an authorizer within a message.
func short(s string) string { return text.Ellipsis(s, 256) }

// quote makes s safe to paste into a shell.
func quote(s string) string {
	plain := strings.IndexFunc(s, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._@/+-", c)
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
