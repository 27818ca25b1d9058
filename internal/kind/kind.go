// Package kind holds the differences between Sonde's kinds that more than one package needs. The rest of the code treats
// all kinds alike. A new kind is one more value here.
package kind

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Kind is a kind whose objects own agent Jobs (sondev1.AgentJobOwner).
type Kind struct {
	// Name of the kind, and Resource under which the API serves it.
	Name, Resource string
	// App is the app.kubernetes.io/name of its objects.
	App string
	// Verb that a requester needs on pods of the target's namespace.
	Verb string
}

// Each visits the objects of the kind that c has. They belong to c's cache: visit must not change them.
func (k Kind) Each(ctx context.Context, c client.Client, visit func(sondev1.AgentJobOwner)) error {
	o, err := c.Scheme().New(sondev1.GroupVersion.WithKind(k.Name + "List"))
	if err != nil {
		return err
	}
	list, _ := o.(client.ObjectList)
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(o runtime.Object) error {
		owner, ok := o.(sondev1.AgentJobOwner)
		if !ok {
			return fmt.Errorf("%T owns no agent Jobs", o)
		}
		visit(owner)
		return nil
	})
}

// Capture is a kind of captures (sondev1.Capture).
type Capture struct {
	Kind

	// Records names what a probe records, for people.
	Records string
	// OnNode returns the field of a Pod's spec that makes a recording show the node's other Pods too, so that the requester
	// needs the verb on nodes. It is empty if no field does.
	OnNode func(*corev1.PodSpec) string
	// Annotations tell people, on each Job, which part of the Pod is recorded.
	Annotations func(sondev1.Common) map[string]string
	// Count formats how much was recorded in all.
	Count func(sondev1.Totals) string
	// New and NewList make empty objects to read into.
	New     func() sondev1.Capture
	NewList func() sondev1.CaptureList
}

// PacketCapture records packets.
var PacketCapture = Capture{
	Kind:    Kind{Name: string(sondev1.CapturePacketCapture), Resource: "packetcaptures", App: "packet-capture", Verb: sondev1.VerbCapture},
	Records: "packets",
	OnNode: func(spec *corev1.PodSpec) string {
		if spec.HostNetwork {
			return FieldHostNetwork
		}
		return ""
	},
	Annotations: func(sondev1.Common) map[string]string { return nil },
	Count:       func(t sondev1.Totals) string { return fmt.Sprintf("%d packets", t.Packets) },
	New:         func() sondev1.Capture { return &sondev1.PacketCapture{} },
	NewList:     func() sondev1.CaptureList { return &sondev1.PacketCaptureList{} },
}

// Trace records system calls.
var Trace = Capture{
	Kind:    Kind{Name: string(sondev1.CaptureTrace), Resource: "traces", App: "trace", Verb: sondev1.VerbTrace},
	Records: "system calls",
	OnNode: func(spec *corev1.PodSpec) string {
		switch {
		case spec.HostPID:
			return FieldHostPID
		case spec.HostNetwork:
			return FieldHostNetwork
		}
		return ""
	},
	Annotations: func(c sondev1.Common) map[string]string {
		return map[string]string{
			sondev1.AnnotationTargetContainer: cmp.Or(strings.Join(c.Containers, ","), everything),
			sondev1.AnnotationTargetCommand:   cmp.Or(c.Command, everything),
		}
	},
	Count:   func(t sondev1.Totals) string { return fmt.Sprintf("%d events", t.Events) },
	New:     func() sondev1.Capture { return &sondev1.Trace{} },
	NewList: func() sondev1.CaptureList { return &sondev1.TraceList{} },
}

// Intercept answers connections to a workload on a developer's machine. Its objects share carrier Jobs.
var Intercept = Kind{Name: sondev1.InterceptKind, Resource: "interceptrequests", App: "intercept", Verb: sondev1.VerbIntercept}

// everything stands for all containers, or all commands, of a Pod.
const everything = "*"

// Fields that OnNode returns.
const (
	FieldHostNetwork = "hostNetwork"
	FieldHostPID     = "hostPID"
)

// Captures are all kinds of captures. Ceilings, queues and jobIds are common to them.
var Captures = []Capture{PacketCapture, Trace}

// Owners are all kinds whose objects own agent Jobs: the sweeper deletes what such objects leave behind.
var Owners = []Kind{PacketCapture.Kind, Trace.Kind}

// Argument names a capture on the command line of kubectl sonde. The default kind is PacketCapture.
func (c Capture) Argument(name string) string {
	if c.Name == PacketCapture.Name {
		return name
	}
	return strings.ToLower(c.Name) + "/" + name
}

// CaptureOf returns the kind of Captures with this name.
func CaptureOf(name string) (Capture, bool) {
	for _, c := range Captures {
		if c.Name == name {
			return c, true
		}
	}
	return Capture{}, false
}

// Of returns the kind of Owners with this name.
func Of(name string) (Kind, bool) {
	for _, k := range Owners {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// CaptureNames are the names of all kinds of captures.
func CaptureNames() []string {
	names := make([]string, len(Captures))
	for i, c := range Captures {
		names[i] = c.Name
	}
	return names
}
