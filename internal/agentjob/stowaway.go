package agentjob

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Keys of Stowaway's Secret. Its Pod gets only the first, but its node's kubelet may read both. So the second is sealed
// (internal/operator/sealed).
const (
	SecretStowaway        = "stowaway.pem"
	SecretStowawayManager = "manager.pem"
)

// ComponentStowaway is the value of the label app.kubernetes.io/component of Stowaway's objects.
const ComponentStowaway = "stowaway"

const (
	// stowawayHeap is the limit of memory without room for sockets. GOMEMLIMIT is a part of it.
	stowawayHeap = 256 * mi
	// stowawaySockets is room for 1,024 send buffers of connections whose other sides take nothing.
	stowawaySockets = 256 * mi
	stowawayRequest = 32 * mi
)

func stowawayLabels() map[string]string {
	labels := naming.Own()
	labels[labelComponent] = ComponentStowaway
	return labels
}

func stowawaySelector() map[string]string {
	return map[string]string{sondev1.LabelAppName: "sonde", labelComponent: ComponentStowaway}
}

// StowawaySecret returns the Secret with the keys of Stowaway and of the manager. It is created once. It is not immutable: the
// kubelet does not watch such a Secret, and would give a Pod that starts before the last Stowaway's has gone the old one of the same
// name.
func StowawaySecret(o Options, owners []metav1.OwnerReference, stowaway, manager []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tunnel.Name, Namespace: o.Namespace, Labels: stowawayLabels(), OwnerReferences: owners},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{SecretStowaway: stowaway, SecretStowawayManager: manager},
	}
}

// StowawayService returns the Service through which clients, carriers and the manager reach Stowaway.
func StowawayService(o Options, owners []*metaac.OwnerReferenceApplyConfiguration) *coreac.ServiceApplyConfiguration {
	return coreac.Service(tunnel.Name, o.Namespace).WithLabels(stowawayLabels()).WithOwnerReferences(owners...).WithSpec(coreac.ServiceSpec().
		WithSelector(stowawaySelector()).
		WithPorts(
			coreac.ServicePort().WithName(tunnel.ClientPortName).WithPort(tunnel.ClientPort).WithTargetPort(intstr.FromString(tunnel.ClientPortName)),
			coreac.ServicePort().WithName(tunnel.PeerPortName).WithPort(tunnel.PeerPort).WithTargetPort(intstr.FromString(tunnel.PeerPortName)),
		))
}

// Stowaway returns the Deployment of the tunnel's end in the cluster. It has no right and no token. It starts only with its own key,
// and managerKey may push its state.
func Stowaway(o Options, owners []*metaac.OwnerReferenceApplyConfiguration, key, managerKey tunnel.PublicKey) *appsac.DeploymentApplyConfiguration {
	container := coreac.Container().WithName("stowaway").WithImage(o.Image).WithImagePullPolicy(corev1.PullIfNotPresent).
		WithCommand("/agent").WithArgs("stowaway", "--identity", identityDir+"/"+SecretStowaway, "--identity-key", string(key), "--manager-key", string(managerKey)).
		WithEnv(coreac.EnvVar().WithName("GOMEMLIMIT").WithValue(strconv.Itoa(stowawayHeap*3/4))).
		WithPorts(
			coreac.ContainerPort().WithName(tunnel.ClientPortName).WithContainerPort(tunnel.ClientPort),
			coreac.ContainerPort().WithName(tunnel.PeerPortName).WithContainerPort(tunnel.PeerPort),
		).
		WithReadinessProbe(coreac.Probe().WithTCPSocket(coreac.TCPSocketAction().WithPort(intstr.FromString(tunnel.PeerPortName))).WithPeriodSeconds(1)).
		// Generous: a restart cuts the streams of all users.
		WithLivenessProbe(coreac.Probe().WithHTTPGet(coreac.HTTPGetAction().WithPath(tunnel.PathHealth).WithPort(intstr.FromString(tunnel.ClientPortName))).
			WithPeriodSeconds(10).WithTimeoutSeconds(5).WithFailureThreshold(3)).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).WithRunAsNonRoot(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL")).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithResources(coreac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: *resource.NewQuantity(stowawayRequest, resource.BinarySI)}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(stowawayHeap+stowawaySockets, resource.BinarySI)})).
		WithVolumeMounts(coreac.VolumeMount().WithName(volumeTLS).WithMountPath(identityDir).WithReadOnly(true)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)
	template := coreac.PodTemplateSpec().WithLabels(stowawayLabels()).
		WithAnnotations(map[string]string{"openshift.io/required-scc": "restricted-v2"}).
		WithSpec(coreac.PodSpec().WithContainers(container).
			WithServiceAccountName("default").WithAutomountServiceAccountToken(false).WithEnableServiceLinks(false).
			WithTerminationGracePeriodSeconds(5).
			WithVolumes(coreac.Volume().WithName(volumeTLS).WithSecret(coreac.SecretVolumeSource().WithSecretName(tunnel.Name).
				WithItems(coreac.KeyToPath().WithKey(SecretStowaway).WithPath(SecretStowaway)).WithDefaultMode(0o444))))
	return appsac.Deployment(tunnel.Name, o.Namespace).WithLabels(stowawayLabels()).WithOwnerReferences(owners...).WithSpec(appsac.DeploymentSpec().
		// Two would not share their clients: the old one goes before the new one comes.
		WithReplicas(1).WithStrategy(appsac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)).
		WithRevisionHistoryLimit(0).
		WithSelector(metaac.LabelSelector().WithMatchLabels(stowawaySelector())).
		WithTemplate(template))
}
