package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// nodeFlags are the probe's flags for a Pod that shares a namespace with its node, and the Pod's field that says so. They
// are read back from the agent's Pod, which only the operator can create: the target may have been deleted.
var nodeFlags = []struct{ flag, field string }{
	{agentjob.FlagHostPID, kind.FieldHostPID},
	{agentjob.FlagHostNetwork, kind.FieldHostNetwork},
}

// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=secrets,verbs=get;list;watch

// agentsOf returns the agents' Pods of one target Pod of a capture. The newest is first.
func (h *Handler) agentsOf(ctx context.Context, capture sondev1.Capture, podUID string) ([]corev1.Pod, error) {
	return h.list(ctx, capture, client.MatchingLabels{sondev1.LabelTargetPodUID: podUID},
		client.MatchingFields{target.IndexPart: target.Part(capture.GetUID(), types.UID(podUID))})
}

// servingOf returns the agents' Pods of a capture whose keepers run. If a target Pod has several, the newest is first. It reads part by part,
// and for one stream at a time, because a copy takes ten times as much memory as the cache.
func (h *Handler) servingOf(ctx context.Context, capture sondev1.Capture) ([]*slim.Pod, error) {
	h.listing.Lock()
	defer h.listing.Unlock()
	var serving []*slim.Pod
	for _, part := range target.ServingParts(capture.GetUID()) {
		agents, err := h.list(ctx, capture, part)
		if err != nil {
			return nil, err
		}
		for i := range agents {
			serving = append(serving, target.SlimAgent(&agents[i]))
		}
	}
	return serving, nil
}

// list returns agents' Pods, the newest first.
func (h *Handler) list(ctx context.Context, capture sondev1.Capture, which ...client.ListOption) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := h.Cache.List(ctx, &list, append(which, client.InNamespace(h.Namespace))...); err != nil {
		return nil, fmt.Errorf("list agents of %s/%s: %w", capture.GetNamespace(), capture.GetName(), err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// starting reports whether the keeper of an agent's Pod has not started yet.
func starting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodPending
}

// onNode returns the field that makes the target Pod share a namespace with its node, or an empty string. pod, the agent's
// Pod, must be read live, because the cache keeps no containers.
func onNode(pod *corev1.Pod) (string, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == captureconfig.ContainerProbe })
	if i < 0 {
		return "", fmt.Errorf("pod %s/%s has no container %s: it is not an agent", pod.Namespace, pod.Name, captureconfig.ContainerProbe)
	}
	for _, f := range nodeFlags {
		if slices.Contains(pod.Spec.Containers[i].Args, f.flag) {
			return f.field, nil
		}
	}
	return "", nil
}

// keeper connects to the keepers of a capture with the keys in its Secret. The caller closes it. The cache knows the
// Secret's name and not its contents: a list at the API server would read the keys of all captures.
func (h *Handler) keeper(ctx context.Context, capture sondev1.Capture) (Keeper, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := h.Cache.List(ctx, &list, client.InNamespace(h.Namespace), client.MatchingFields{target.IndexCapture: string(capture.GetUID())})
	if err != nil {
		return nil, fmt.Errorf("list secrets of %s/%s: %w", capture.GetNamespace(), capture.GetName(), err)
	}
	for i := range list.Items {
		var secret corev1.Secret
		err := h.Live.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), &secret)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("get secret %s: %w", list.Items[i].Name, err)
		}
		if own := secret.Data[captureconfig.SecretClientKey]; len(own) > 0 {
			if secret.Data[captureconfig.SecretClientKey], err = sealed.Open(h.Key, secret.Name, captureconfig.SecretClientKey, own); err != nil {
				return nil, err
			}
			return h.connect(secret.Data)
		}
	}
	return nil, failf(http.StatusGone, "the results of %[1]s %[2]s/%[3]s cannot be reached any more, because the keys of its keepers are gone: create a new %[1]s",
		capture.KindName(), capture.GetNamespace(), capture.GetName())
}

// whole returns a capture with the entries of all Pods, which the cache does not keep once the capture has ended.
func (h *Handler) whole(ctx context.Context, k kind.Capture, cached sondev1.Capture) (sondev1.Capture, error) {
	if !cached.CaptureStatus().Phase.Final() {
		return cached, nil
	}
	capture := k.New()
	err := h.Live.Get(ctx, client.ObjectKeyFromObject(cached), capture)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get the current %s %s/%s: %w", k.Name, cached.GetNamespace(), cached.GetName(), err)
	}
	if err != nil || capture.GetUID() != cached.GetUID() {
		return nil, failf(http.StatusNotFound, "%[1]s %[2]s/%[3]s was deleted, and its results with it: create a new %[1]s", k.Name, cached.GetNamespace(), cached.GetName())
	}
	return capture, nil
}

// agentFor returns the agent of one target Pod whose keeper runs, read live, or a failure that says why there is none.
func (h *Handler) agentFor(ctx context.Context, k kind.Capture, capture sondev1.Capture, podUID string) (*corev1.Pod, error) {
	agents, err := h.agentsOf(ctx, capture, podUID)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(agents, func(p corev1.Pod) bool { return target.Serving(&p) }); i >= 0 {
		return h.readLive(ctx, &agents[i])
	}
	if slices.ContainsFunc(agents, func(p corev1.Pod) bool { return starting(&p) }) {
		return nil, failf(http.StatusNotFound, "the capture of this Pod has not begun yet: try again in a few seconds")
	}
	if capture, err = h.whole(ctx, k, capture); err != nil {
		return nil, err
	}
	status, kindName := capture.CaptureStatus(), k.Name
	entry := slices.IndexFunc(status.Pods, func(p sondev1.PodResult) bool { return p.UID == podUID })
	switch {
	case entry >= 0 && !status.Pods[entry].Phase.Final() && len(agents) == 0:
		return nil, failf(http.StatusNotFound, "the capture of Pod %s has not begun yet: try again in a few seconds", status.Pods[entry].Name)
	case entry >= 0:
		return nil, failf(http.StatusGone, "the files of Pod %s are gone: they are kept for retainFor (%s) after the capture, and only as long as the node keeps the agent's Pod; create a new %s, if needed with a longer retainFor",
			status.Pods[entry].Name, capture.Common().RetainFor, kindName)
	case len(agents) > 0 || status.PodsOmitted > 0:
		return nil, failf(http.StatusGone, "the files of this Pod are gone: create a new %s, if needed with a longer retainFor", kindName)
	}
	return nil, failf(http.StatusNotFound, "%s %s/%s has no Pod with this UID: see uid in status.pods", kindName, capture.GetNamespace(), capture.GetName())
}

// readLive reads an agent's Pod with the fields that the cache does not keep.
func (h *Handler) readLive(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := h.Live.Get(ctx, client.ObjectKeyFromObject(cached), &pod)
	if apierrors.IsNotFound(err) || err == nil && (pod.UID != cached.UID || !target.Serving(&pod)) {
		return nil, failf(http.StatusGone, "the agent's Pod %s has just been deleted, and its files with it: create a new capture", cached.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("get agent %s: %w", cached.Name, err)
	}
	return &pod, nil
}

// mayRead reviews the right on nodes if the files of an agent are the whole node's.
func (h *Handler) mayRead(ctx context.Context, s session, agent *corev1.Pod) error {
	field, err := onNode(agent)
	if field == "" || err != nil {
		return err
	}
	s.onNode.Store(&field)
	return h.reviewNodes(ctx, s)
}

// reviewNodes reviews the right on nodes if the request has needed it.
func (h *Handler) reviewNodes(ctx context.Context, s session) error {
	field := s.onNode.Load()
	if field == nil {
		return nil
	}
	d, err := h.Reviews.ReviewNodes(ctx, s.kind.Verb, s.who)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return failf(http.StatusForbidden, "this Pod has %s: true, so its %s are the whole node's: %s", *field, s.kind.Records, d.Reason)
	}
	return nil
}

// isFailure reports whether err is an answer for the user.
func isFailure(err error) bool {
	_, ok := errors.AsType[*failure](err)
	return ok
}
