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
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/captureconfig"
	"github.com/sonde-operator/sonde/internal/target"
)

// hostNetworkFlag is what the probe of a hostNetwork Pod is told. It is read back from the agent's
// Pod, which nobody but the operator can make: the target itself may be long gone.
const hostNetworkFlag = "--host-network"

// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=secrets,verbs=list

// agents returns the agents' Pods of a capture, newest first: of one target Pod or, without podUID, of all.
func (h *Handler) agents(ctx context.Context, pc *sondev1.PacketCapture, podUID string) ([]corev1.Pod, error) {
	which := []client.ListOption{client.InNamespace(h.Namespace), client.MatchingFields{target.IndexCapture: string(pc.UID)}}
	if podUID != "" {
		which = append(which, client.MatchingLabels{sondev1.LabelTargetPodUID: podUID})
	}
	var list corev1.PodList
	if err := h.Cache.List(ctx, &list, which...); err != nil {
		return nil, fmt.Errorf("list agents of %s/%s: %w", pc.Namespace, pc.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// serving reports whether the keeper of an agent's Pod can be asked.
func serving(pod *corev1.Pod) bool {
	return pod.Status.PodIP != "" && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == captureconfig.ContainerKeeper && s.State.Running != nil
	})
}

// starting reports whether the keeper of an agent's Pod is still to come.
func starting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodPending
}

// onHostNetwork reports whether an agent captures its node's network. pod must be whole: the cache
// keeps no containers, and a Pod without a probe must not pass for one that sees a single Pod.
func onHostNetwork(pod *corev1.Pod) (bool, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == captureconfig.ContainerProbe })
	if i < 0 {
		return false, fmt.Errorf("pod %s/%s has no container %s: it is no agent", pod.Namespace, pod.Name, captureconfig.ContainerProbe)
	}
	return slices.Contains(pod.Spec.Containers[i].Args, hostNetworkFlag), nil
}

// keeper connects to the keepers of a capture by what its Secret holds. The caller closes it.
func (h *Handler) keeper(ctx context.Context, pc *sondev1.PacketCapture) (Keeper, error) {
	var list corev1.SecretList
	err := h.Live.List(ctx, &list, client.InNamespace(h.Namespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)})
	if err != nil {
		return nil, fmt.Errorf("list secrets of %s/%s: %w", pc.Namespace, pc.Name, err)
	}
	i := slices.IndexFunc(list.Items, func(s corev1.Secret) bool { return len(s.Data[captureconfig.SecretClientKey]) > 0 })
	if i < 0 {
		return nil, failf(http.StatusGone, "the results of PacketCapture %s/%s cannot be reached any more: the keys of its keepers are gone; create a new PacketCapture", pc.Namespace, pc.Name)
	}
	return h.connect(list.Items[i].Data)
}

// agentFor returns the agent of one target Pod that serves, whole, or a failure that says why there is none.
func (h *Handler) agentFor(ctx context.Context, pc *sondev1.PacketCapture, podUID string) (*corev1.Pod, error) {
	agents, err := h.agents(ctx, pc, podUID)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(agents, func(p corev1.Pod) bool { return serving(&p) }); i >= 0 {
		return h.whole(ctx, &agents[i])
	}
	if slices.ContainsFunc(agents, func(p corev1.Pod) bool { return starting(&p) }) {
		return nil, failf(http.StatusNotFound, "the capture of this Pod has not begun yet: try again in a few seconds")
	}
	entry := slices.IndexFunc(pc.Status.Pods, func(p sondev1.PodResult) bool { return p.UID == podUID })
	switch {
	case entry >= 0 && !pc.Status.Pods[entry].Phase.Final() && len(agents) == 0:
		return nil, failf(http.StatusNotFound, "the capture of Pod %s has not begun yet: try again in a few seconds", pc.Status.Pods[entry].Name)
	case entry >= 0:
		return nil, failf(http.StatusGone, "the files of Pod %s are gone: they are kept for retainFor (%s) after the capture, and only as long as the node keeps the agent's Pod; create a new PacketCapture, with a longer retainFor if need be",
			pc.Status.Pods[entry].Name, pc.Spec.RetainFor)
	case len(agents) > 0 || pc.Status.PodsOmitted > 0:
		return nil, failf(http.StatusGone, "the files of this Pod are gone: create a new PacketCapture, with a longer retainFor if need be")
	}
	return nil, failf(http.StatusNotFound, "PacketCapture %s/%s has no Pod with this UID: see uid in status.pods", pc.Namespace, pc.Name)
}

// whole reads an agent's Pod live, with all that the cache has stripped from it.
func (h *Handler) whole(ctx context.Context, cached *corev1.Pod) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := h.Live.Get(ctx, client.ObjectKeyFromObject(cached), &pod)
	if apierrors.IsNotFound(err) || err == nil && (pod.UID != cached.UID || !serving(&pod)) {
		return nil, failf(http.StatusGone, "the agent's Pod %s has just gone, and the files with it", cached.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("get agent %s: %w", cached.Name, err)
	}
	return &pod, nil
}

// mayRead asks for the right on nodes where the files of an agent hold a node's packets.
func (h *Handler) mayRead(ctx context.Context, s session, agent *corev1.Pod) error {
	if host, err := onHostNetwork(agent); !host || err != nil {
		return err
	}
	d, err := h.Reviews.MayCaptureNodes(ctx, s.who)
	if err != nil {
		return err
	}
	if !d.Allowed {
		return failf(http.StatusForbidden, "this Pod has hostNetwork: true, so its packets are the whole node's: %s", d.Reason)
	}
	return nil
}

// isFailure reports whether err is an answer in words for the user.
func isFailure(err error) bool {
	_, ok := errors.AsType[*failure](err)
	return ok
}
