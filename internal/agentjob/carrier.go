package agentjob

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// KindCarrier is the value of sondev1.LabelKind on the Jobs and Secrets of carriers. A carrier serves all InterceptRequests on its
// target Pod, so its LabelUID is that Pod's UID.
const KindCarrier = "Carrier"

const (
	// carrierDeadline is longer than any InterceptRequest lasts. It ends carriers if no operator comes back.
	carrierDeadline = 24*time.Hour + Margin
	// carrierGrace in seconds leaves time after the drain to write the termination message.
	carrierGrace = int64(handover.DrainTime/time.Second) + 2
	// carrierKept is how long an ended carrier's Job is kept if no operator deletes it.
	carrierKept = time.Hour
	// carrierPrefix bounds the beginning of a carrier's name in bytes. It leaves room for a part of the Pod's UID.
	carrierPrefix = 40
	// openerHeap and carrierHeap are the limits of memory without room for sockets. GOMEMLIMIT is a part of them, so that the Go heap
	// leaves the sockets their room.
	openerHeap  = 96 * mi
	carrierHeap = 192 * mi
	// socketDir is the volume in which the opener's socket is, and socketPath is the socket.
	socketDir  = "/control"
	socketPath = socketDir + "/opener.sock"
	// identityDir has the carrier's key in the file SecretIdentity.
	identityDir = "/identity"
	// SecretIdentity is the key of a carrier's Secret.
	SecretIdentity = "identity.pem"
)

// CarrierPlan holds what differs between the Jobs of carriers.
type CarrierPlan struct {
	Name string
	// Pod whose ports are intercepted; its name, namespace, UID and node are used.
	Pod *corev1.Pod
	// Stowaway's address and key.
	Stowaway    netip.AddrPort
	StowawayKey tunnel.PublicKey
	// Key of the carrier. Its Secret has the private half.
	Key tunnel.PublicKey
	// User of the carrier, made by KeeperUser. No other live Job may have it.
	User int64
	// Owners of the Job and the Secret: the install, with which they go.
	Owners []metav1.OwnerReference
}

// StowawayID is the value of sondev1.LabelStowaway. A carrier that has another one than its Stowaway connects nowhere.
func StowawayID(key tunnel.PublicKey, address string) string {
	sum := sha256.Sum256([]byte(string(key) + " " + address))
	return hex.EncodeToString(sum[:16])
}

// CarrierName returns the name of a Pod's carrier, of its Job and its Secret. A Pod has one name, so that the API server refuses a
// second carrier: two would intercept each other.
func CarrierName(pod *corev1.Pod) string {
	return naming.Cut("carrier-"+pod.Name, carrierPrefix) + "-" + naming.Short(pod.UID)
}

func carrierMeta(o Options, p CarrierPlan) metav1.ObjectMeta {
	labels := naming.Own()
	labels[sondev1.LabelAppName] = kind.Intercept.App
	labels[sondev1.LabelKind], labels[sondev1.LabelUID] = KindCarrier, string(p.Pod.UID)
	labels[sondev1.LabelTargetPodUID] = string(p.Pod.UID)
	labels[sondev1.LabelKeeperUser] = strconv.FormatInt(p.User, 10)
	labels[sondev1.LabelStowaway] = StowawayID(p.StowawayKey, p.Stowaway.Addr().String())
	return metav1.ObjectMeta{Name: p.Name, Namespace: o.Namespace, Labels: labels, OwnerReferences: p.Owners, Annotations: map[string]string{
		sondev1.AnnotationOwner:           naming.Owner(p.Pod),
		sondev1.AnnotationCarrierKey:      string(p.Key),
		sondev1.AnnotationTargetNamespace: p.Pod.Namespace, sondev1.AnnotationTargetPod: p.Pod.Name, sondev1.AnnotationTargetNode: p.Pod.Spec.NodeName,
	}}
}

// CarrierSecret returns the Secret with the key of a carrier.
func CarrierSecret(o Options, p CarrierPlan, identity []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: carrierMeta(o, p), Immutable: new(true), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{SecretIdentity: identity},
	}
}

// Carrier returns the Job that intercepts ports of one Pod: an opener and its carrier.
func Carrier(o Options, p CarrierPlan) *batchv1.Job {
	spec := NodePod(p.Pod.Spec.NodeName, carrierGrace, opener(o, p), carrier(o, p))
	spec.Volumes = []corev1.Volume{
		{Name: volumeControl, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(mi, resource.BinarySI),
		}}},
		{Name: volumeTLS, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: p.Name, DefaultMode: new(int32(0o444))}}},
	}
	return once(carrierMeta(o, p), spec, carrierDeadline, carrierKept)
}

// opener returns the container with rights on the node. It enters the target's network namespace and steers its ports.
func opener(o Options, p CarrierPlan) corev1.Container {
	return corev1.Container{
		Name: "opener", Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/agent"}, Args: []string{
			"opener", "--pod-uid", string(p.Pod.UID), "--pod-name", p.Pod.Name, "--carrier-user", strconv.FormatInt(p.User, 10), "--socket", socketPath,
		},
		Env:             []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.Itoa(openerHeap * 3 / 4)}},
		SecurityContext: probeSecurity(o.Privilege, false),
		// "started" in the Pod's status means that the program is attached.
		StartupProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/agent", "ready", "--file", socketPath + ".ready"}}},
			PeriodSeconds: 1, FailureThreshold: 120, TimeoutSeconds: 5,
		},
		Resources:                agentResources("20m", 24*mi, openerHeap+handover.SocketMemory),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeControl, MountPath: socketDir}},
	}
}

// carrier returns the container that parses the traffic. It has no rights on the node.
func carrier(o Options, p CarrierPlan) corev1.Container {
	return corev1.Container{
		Name: "carrier", Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/agent"}, Args: []string{
			"carrier", "--socket", socketPath, "--stowaway", p.Stowaway.String(), "--stowaway-key", string(p.StowawayKey),
			"--identity", identityDir + "/" + SecretIdentity, "--identity-key", string(p.Key), "--pod-uid", string(p.Pod.UID), "--pod", naming.Owner(p.Pod),
		},
		Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.Itoa(carrierHeap * 3 / 4)}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(p.User), RunAsGroup: new(p.User),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Resources:                agentResources("20m", 24*mi, carrierHeap+handover.SocketMemory),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeControl, MountPath: socketDir}, {Name: volumeTLS, MountPath: identityDir, ReadOnly: true},
		},
	}
}

// agentResources requests cpu and memory in bytes, and limits the memory.
func agentResources(cpu string, request, limit int64) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: *resource.NewQuantity(request, resource.BinarySI),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(limit, resource.BinarySI)},
	}
}
