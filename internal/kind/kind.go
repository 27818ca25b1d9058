// Package kind knows the kinds that run one agent Job per Pod of a target (sondev1.Capture): what tells one from another
// wherever the rest is the same for all. A new kind is one more value here.
package kind

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Kind is what differs between kinds, as far as more than one package asks.
type Kind struct {
	// Name of the kind, and Resource under which the API serves it.
	Name, Resource string
	// App is the kind's app.kubernetes.io/name.
	App string
	// Verb that a requester needs on pods of the target's namespace.
	Verb string
	// Takes names what a probe takes of a Pod, for people.
	Takes string
	// OnNode names the field by which Pods of this spec are one with their node, so that what is taken of them is the
	// node's, and the verb is needed on nodes too; empty if they are not.
	OnNode func(*corev1.PodSpec) string
	// Counted says how much was taken in all.
	Counted func(sondev1.Totals) string
	// New and NewList make empty objects to read into.
	New     func() sondev1.Capture
	NewList func() sondev1.CaptureList
}

// PacketCapture records packets.
var PacketCapture = Kind{
	Name: string(sondev1.CapturePacketCapture), Resource: "packetcaptures", App: "packet-capture", Verb: sondev1.VerbCapture, Takes: "packets",
	OnNode: func(spec *corev1.PodSpec) string {
		if spec.HostNetwork {
			return FieldHostNetwork
		}
		return ""
	},
	Counted: func(t sondev1.Totals) string { return fmt.Sprintf("%d packets", t.Packets) },
	New:     func() sondev1.Capture { return &sondev1.PacketCapture{} },
	NewList: func() sondev1.CaptureList { return &sondev1.PacketCaptureList{} },
}

// Trace records system calls.
var Trace = Kind{
	Name: string(sondev1.CaptureTrace), Resource: "traces", App: "trace", Verb: sondev1.VerbTrace, Takes: "system calls",
	OnNode: func(spec *corev1.PodSpec) string {
		switch {
		case spec.HostPID:
			return FieldHostPID
		case spec.HostNetwork:
			return FieldHostNetwork
		}
		return ""
	},
	Counted: func(t sondev1.Totals) string { return fmt.Sprintf("%d events", t.Events) },
	New:     func() sondev1.Capture { return &sondev1.Trace{} },
	NewList: func() sondev1.CaptureList { return &sondev1.TraceList{} },
}

// Fields that OnNode names.
const (
	FieldHostNetwork = "hostNetwork"
	FieldHostPID     = "hostPID"
)

// All kinds. Ceilings, queues and jobIds are for captures of all of them together.
var All = []Kind{PacketCapture, Trace}

// Argument is what a capture of the kind is called behind a command of kubectl sonde. A name alone is a PacketCapture's
// as long as there is one.
func (k Kind) Argument(name string) string {
	if k.Name == PacketCapture.Name {
		return name
	}
	return strings.ToLower(k.Name) + "/" + name
}

// Of finds a kind by its name.
func Of(name string) (Kind, bool) {
	for _, k := range All {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Names of all kinds.
func Names() []string {
	names := make([]string, len(All))
	for i, k := range All {
		names[i] = k.Name
	}
	return names
}
