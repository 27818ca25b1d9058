// Package agentjob builds the ConfigMap, the Secret and the Jobs of an owner of agent Jobs. The functions are pure. The operator
// creates the objects once and never applies them again, so it need not compare them with what an earlier version built.
package agentjob

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// Names of the install: the manager's own, and those that the Jobs refer to.
const (
	ManagerDeployment     = "sonde-manager"
	ManagerServiceAccount = "sonde-manager"

	ServiceAccount = "sonde-probe"
	PriorityClass  = "sonde-probe"
	RequiredSCC    = "sonde-probe"
)

// Margin is added to the duration and the retention of a Job, for pulling the image, starting, waiting for the target's first
// process, and ending.
const Margin = 10 * time.Minute

// AccountKept is how long the account of an ended capture waits for a manager.
const AccountKept = 24 * time.Hour

// Options are the operator's own configuration, read once in main.
type Options struct {
	// Namespace of the operator, where all objects are created.
	Namespace string
	// Image of the agent: the operator's own.
	Image string
	// RingBytes of memory for the packet ring of one Pod's probe.
	RingBytes int64
	// DiskFloor is the free space that probes leave on their node's disk.
	DiskFloor DiskFloor
	// Privilege with which probes run.
	Privilege privilege.Setting
	// KeeperRestarts reports that the cluster can restart one container of a Pod (platform.RestartsContainers), so that a killed
	// keeper serves its file again.
	KeeperRestarts bool
}

func meta(o Options, owner sondev1.AgentJobOwner, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: o.Namespace, Labels: naming.Labels(owner),
		Annotations: map[string]string{sondev1.AnnotationOwner: naming.Owner(owner)},
	}
}

// Configuration returns the configuration of the probes of a PacketCapture. The requester is a user name; programs hold the
// compiled filter by link type, and are empty without a filter.
func Configuration(o Options, pc *sondev1.PacketCapture, jobID, requester string, programs map[int32]string) captureconfig.Config {
	c := o.common(pc, jobID, requester)
	c.Filter, c.Programs = pc.Spec.Filter, maps.Clone(programs)
	c.SnapLength, c.Interfaces, c.Engine = pc.Spec.SnapLength, pc.Spec.Interfaces, string(pc.Spec.Engine)
	c.Processes = pc.Spec.Processes
	if r := pc.Spec.Rotate; r != nil {
		c.Rotate = &captureconfig.Rotate{MaxBytes: r.MaxBytes, Files: r.Files}
	}
	if pc.Spec.MaxPackets != nil {
		c.MaxPackets = *pc.Spec.MaxPackets
	}
	c.Version = c.LowestVersion()
	return c
}

// TraceConfiguration returns the configuration of the probes of a Trace. The requester is a user name.
func TraceConfiguration(o Options, t *sondev1.Trace, jobID, requester string) captureconfig.Config {
	c := o.common(t, jobID, requester)
	c.Trace = &captureconfig.Trace{
		Flap: t.Spec.Format == sondev1.TraceFlap, Containers: t.Spec.Containers, Command: t.Spec.Command, Children: t.Spec.Children,
	}
	for _, g := range t.Spec.Events {
		c.Trace.Groups = append(c.Trace.Groups, string(g))
		// Starting and ending a process, and sending a signal, have no duration.
		c.Trace.Durations = c.Trace.Durations || g != sondev1.TraceProcess && g != sondev1.TraceSignal
	}
	if least, err := time.ParseDuration(t.Spec.MinLatency); err == nil { // the schema ensures that it parses
		c.Trace.MinLatency = least.Nanoseconds()
	}
	if t.Spec.MaxEvents != nil {
		c.Trace.MaxEvents = *t.Spec.MaxEvents
	}
	c.Version = c.LowestVersion()
	return c
}

// common returns the configuration that the probes of all kinds have.
func (o Options) common(capture sondev1.Capture, jobID, requester string) captureconfig.Config {
	common := capture.Common()
	return captureconfig.Config{
		UID: string(capture.GetUID()), Kind: capture.KindName(), Namespace: capture.GetNamespace(), Name: capture.GetName(),
		JobID: jobID, Requester: requester,
		Target: common.Target.String(), TargetNamespace: common.TargetNamespace,
		MaxBytes: common.MaxBytes, RingBytes: o.RingBytes, DiskFloor: o.DiskFloor.Config(),
	}
}

// Marshaler is the configuration of the probes of a kind.
type Marshaler interface {
	Marshal() (string, error)
}

// ConfigMap returns the ConfigMap of an owner's agents. It is not immutable: an earlier owner may have used its name, and the
// kubelet caches immutable objects by name.
func ConfigMap(o Options, owner sondev1.AgentJobOwner, name string, config Marshaler) (*corev1.ConfigMap, error) {
	text, err := config.Marshal()
	if err != nil {
		return nil, fmt.Errorf("build config map %s: %w", name, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: meta(o, owner, name),
		Data:       map[string]string{captureconfig.Key: text},
	}, nil
}

// Secret returns the Secret with which an owner's agents and the manager authenticate each other: the data of
// keeperapi.GeneratePairs, in which the manager's key is sealed, because the kubelets of the agents may read it.
func Secret(o Options, owner sondev1.AgentJobOwner, name string, pairs map[string][]byte) *corev1.Secret {
	immutable := true
	return &corev1.Secret{
		ObjectMeta: meta(o, owner, name), Immutable: &immutable,
		Type: corev1.SecretTypeOpaque, Data: pairs,
	}
}
