package agentjob

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

const (
	mi = 1 << 20
	gi = 1 << 30

	// probeMemory in bytes, without the ring.
	probeMemory = 128 * mi
	// probeHeap in bytes bounds the heap's garbage. The rest of probeMemory is for the kernel: BPF maps, sockets, unwritten files.
	probeHeap = 96 * mi
	// resultsMargin in bytes is added to the volume, so that the file's own limit ends the capture before the kubelet evicts the Pod.
	resultsMargin = 64 * mi
	// storageRequest in bytes is the largest request: a node need not have all of a very large maxBytes free at the start.
	storageRequest = gi
	// KeeperFailed is the exit code of a keeper that cannot serve, even after a restart.
	KeeperFailed = 1
	// ExitUnknown is the exit code that runtimes report if they did not see a container end, for example after a reboot. Neither
	// probe nor keeper uses it.
	ExitUnknown = 255
)

// Volumes of an agent's Pod.
const (
	volumeConfig  = "config"
	volumeTLS     = "tls"
	volumeResults = "results"
	volumeControl = "control"
)

// FlagHostNetwork tells a probe that its Pod uses its node's network. The results endpoint reads it too, after the Pod is gone.
const FlagHostNetwork = "--host-network"

// FlagHostPID tells a probe that its Pod sees its node's processes.
const FlagHostPID = "--host-pid"

// FlagGate tells a probe that its Pod's gate waits for it.
const FlagGate = "--gate"

// commandProbe of the agent serves every kind; the configuration says what it records.
const commandProbe = "probe"

// probe returns the container with rights on the node. It enters the target's network namespace and writes the file.
func probe(o Options, capture sondev1.Capture, p Plan) corev1.Container {
	args := []string{
		commandProbe,
		"--config", captureconfig.ConfigDir + "/" + captureconfig.Key,
		"--capture-uid", string(capture.GetUID()),
		"--pod-uid", string(p.Pod.UID),
		"--pod-name", p.Pod.Name,
		"--node", p.Pod.Spec.NodeName,
		"--duration", secondsText(p.Duration),
	}
	if p.Pod.Spec.HostNetwork {
		args = append(args, FlagHostNetwork)
	}
	if k, _ := kind.CaptureOf(capture.KindName()); k.OnNode(&p.Pod.Spec) == kind.FieldHostPID {
		args = append(args, FlagHostPID)
	}
	if p.Gate {
		args = append(args, FlagGate)
	}
	return corev1.Container{
		Name: captureconfig.ContainerProbe, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/agent"}, Args: args,
		Env:             []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.Itoa(probeHeap)}},
		SecurityContext: probeSecurity(o.Privilege, p.Gate),
		// "started" in the Pod's status means that the probe is attached and counts every packet.
		StartupProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/agent", "ready"}}},
			PeriodSeconds: 1, FailureThreshold: 300, TimeoutSeconds: 5,
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:              resource.MustParse("50m"),
				corev1.ResourceMemory:           *resource.NewQuantity(64*mi, resource.BinarySI),
				corev1.ResourceEphemeralStorage: *resource.NewQuantity(min(capture.Common().MaxBytes, storageRequest), resource.BinarySI),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceMemory: *resource.NewQuantity(probeMemory+ringMemory(o, capture), resource.BinarySI),
			},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeConfig, MountPath: captureconfig.ConfigDir, ReadOnly: true},
			{Name: volumeResults, MountPath: captureconfig.ResultsDir},
			{Name: volumeControl, MountPath: captureconfig.ControlDir, ReadOnly: true},
		},
	}
}

// ringMemory is the largest memory of the probe's rings. It is part of the limit, but not of the request, which covers usual use.
func ringMemory(o Options, capture sondev1.Capture) int64 {
	if e := capture.Common().Engine; e == sondev1.EngineBPF || e == sondev1.EngineAuto {
		return ringmemory.MaxBytes(o.RingBytes)
	}
	return o.RingBytes
}

// probeSecurity returns the probe's rights in a setting. The user is always 0: Kubernetes gives added capabilities to no
// other user.
func probeSecurity(setting privilege.Setting, gate bool) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(false), ReadOnlyRootFilesystem: new(true)}
	if setting != privilege.Capabilities {
		sc.Privileged = new(true)
		return sc
	}
	var add []corev1.Capability
	for _, c := range privilege.Needed(gate) {
		add = append(add, corev1.Capability(c.Name))
	}
	sc.AllowPrivilegeEscalation = new(false)
	sc.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add}
	sc.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	// A privileged container has these implicitly. Otherwise SELinux and AppArmor would deny access to other containers' processes.
	sc.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	sc.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	return sc
}

// keeper returns the container that serves the file to the manager only. It has no rights on the node.
func keeper(o Options, p Plan) corev1.Container {
	c := corev1.Container{
		Name: captureconfig.ContainerKeeper, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/agent"}, Args: []string{"keeper", "--retain", secondsText(p.RetainFor)},
		Ports: []corev1.ContainerPort{{Name: "keeper", ContainerPort: captureconfig.KeeperPort, Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(p.KeeperUser), RunAsGroup: new(p.KeeperUser),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("10m"),
				corev1.ResourceMemory: *resource.NewQuantity(16*mi, resource.BinarySI),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(64*mi, resource.BinarySI)},
		},
		// After an error the end of the log is the message.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeTLS, MountPath: captureconfig.TLSDir, ReadOnly: true},
			{Name: volumeResults, MountPath: captureconfig.ResultsDir, ReadOnly: true},
			{Name: volumeControl, MountPath: captureconfig.ControlDir},
		},
	}
	if o.KeeperRestarts {
		// No restart after the retention is over (0), if it cannot serve (1), or after a reboot (ExitUnknown). The kubelet does
		// not restart Pods after a reboot, and would never report a Pod with a restartable container as failed.
		c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0, KeeperFailed, ExitUnknown},
			},
		}}
	}
	return c
}

func volumes(capture sondev1.Capture, p Plan) []corev1.Volume {
	items := make([]corev1.KeyToPath, 0, 3)
	for _, key := range []string{captureconfig.SecretServerCert, captureconfig.SecretServerKey, captureconfig.SecretClientCert} {
		items = append(items, corev1.KeyToPath{Key: key, Path: key}) // never the manager's key
	}
	return []corev1.Volume{
		{Name: volumeConfig, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: p.ConfigMap},
		}}},
		{Name: volumeTLS, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: p.Secret, Items: items, DefaultMode: new(int32(0o444)),
		}}},
		{Name: volumeResults, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(capture.Common().MaxBytes+resultsMargin, resource.BinarySI),
		}}},
		// In memory the limit holds at each write. On disk it holds from the kubelet's next check, and the disk may be full before.
		{Name: volumeControl, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(mi, resource.BinarySI),
		}}},
	}
}
