package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
)

// RequirePods refuses a requester who lacks one of Sonde's verbs on the Pods of namespace.
func RequirePods(ctx context.Context, reviews access.Reviews, verb string, who access.Requester, namespace string) error {
	decision, err := reviews.ReviewPods(ctx, verb, who, namespace)
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return Forbidden("%s", decision.Reason)
	}
	return nil
}

// RequireNodes refuses a requester who lacks the verb of a kind on nodes, if spec shares with its node the network or processes
// that the kind captures. target names the object that has spec.
func RequireNodes(ctx context.Context, reviews access.Reviews, k kind.Capture, who access.Requester, spec *corev1.PodSpec, target string) error {
	field := k.OnNode(spec)
	if field == "" {
		return nil
	}
	decision, err := reviews.ReviewNodes(ctx, k.Verb, who)
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return Forbidden("the Pods of %s have %s: true, so their %s are the whole node's: %s", target, field, k.Records, decision.Reason)
	}
	return nil
}

// RequireHub refuses a target in another namespace unless a cluster admin has labelled home as a hub: a status names the
// target's Pods to all who may read it. kindName is the kind of the object that is created.
func RequireHub(ctx context.Context, live client.Reader, kindName, home, targetNamespace string) error {
	if home == targetNamespace {
		return nil
	}
	hub, err := isHub(ctx, live, home)
	if err != nil {
		return err
	}
	if !hub {
		return Forbidden("a target in another namespace is allowed only from a namespace that a cluster admin has labelled %s=true: create the %s in namespace %s, or in such a hub, as packet-capture is by default", sondev1.LabelHub, kindName, targetNamespace)
	}
	return nil
}
