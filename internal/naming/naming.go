// Package naming makes the names and labels of the objects that the operator creates. It uses the names of the source systems
// where they are free and fit. A truncated name always ends in a hash, so that two objects never share a name.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// Longest names and label values in bytes. MaxLabel also bounds the names of Jobs, which become label values of their Pods.
const (
	MaxLabel = 63
	MaxName  = 253

	secretSuffix = "-keeper"
	jobIDChars   = 4
)

// Cut returns s if it has at most limit bytes, and otherwise its beginning and 8 hex digits of its hash. The result ends in a
// letter or digit if s does.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return withSuffix(s, "-"+hex.EncodeToString(sum[:4]), limit)
}

// withSuffix shortens s so that it fits limit bytes together with suffix. The suffix must make the result unique.
func withSuffix(s, suffix string, limit int) string {
	if len(s)+len(suffix) > limit {
		s = s[:max(limit-len(suffix), 0)]
	}
	// "x.-1" is not a valid name.
	return strings.TrimRight(s, "-._") + suffix
}

// Short returns the first 8 hex digits of a UID, or of its hash if it is not a UUID.
func Short(uid types.UID) string {
	digits := strings.ReplaceAll(string(uid), "-", "")
	if len(digits) >= 8 {
		if _, err := hex.DecodeString(digits[:8]); err == nil {
			return strings.ToLower(digits[:8])
		}
	}
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:4])
}

// reserved begins the names of the operator's own ConfigMaps, such as sonde-config, which holds the pause.
const reserved = "sonde-"

// ConfigMaps returns the names for the ConfigMap of the capture with this UID, in the order in which they are tried: the source's
// {{targetNamespace}}-{{workload}}, then with the UID. Users choose the first one. It never begins with reserved: with a workload
// config in a namespace sonde, a user could otherwise take the name of the pause's ConfigMap.
func ConfigMaps(targetNamespace, workload string, uid types.UID) []string {
	base := targetNamespace + "-" + workload
	second := withUID(base, uid, MaxName)
	if len(base) > MaxName || strings.HasPrefix(base, reserved) {
		return []string{second}
	}
	return []string{base, second}
}

// Secret returns the name of the Secret, always with the UID: the kubelet caches immutable Secrets by name, and could mount the
// one of an earlier capture.
func Secret(targetNamespace, workload string, uid types.UID) string {
	room := MaxName - len(secretSuffix)
	return withUID(targetNamespace+"-"+workload, uid, room) + secretSuffix
}

func withUID(base string, uid types.UID, room int) string {
	return withSuffix(Cut(base, room-9), "-"+Short(uid), room)
}

// Jobs returns the names for the Job of one Pod, in the order in which they are tried. The first is the source's
// {{podName}}-{{jobId}}, the second adds the capture's UID, and the last two add the Pod's UID to these. The last two serve Pods
// of StatefulSets, which keep their names, and names that are too long.
func Jobs(podName string, podUID types.UID, jobID string, captureUID types.UID) []string {
	first := podName + "-" + jobID
	last := "-" + Short(podUID) + "-" + jobID
	own := "-" + Short(captureUID)
	var names []string
	for _, name := range []string{first, first + own} {
		if len(name) <= MaxLabel {
			names = append(names, name)
		}
	}
	return append(names, withSuffix(podName, last, MaxLabel), withSuffix(podName, last+own, MaxLabel))
}

// Sweep returns the name of the Job that sweeps after the probe of one Pod.
func Sweep(podUID, captureUID types.UID) string {
	return reserved + "sweep-" + Short(podUID) + "-" + Short(captureUID)
}

// JobID returns a jobId of four characters of [a-z0-9] for the capture with this UID. It is always the same, unless inUse reports
// that another live capture of the target has it.
func JobID(uid types.UID, inUse func(string) bool) string {
	const tries = 1000 // of 1.6 million jobIds; no workload has so many captures at a time
	id := ""
	for attempt := range tries {
		sum := sha256.Sum256([]byte(string(uid) + "/" + strconv.Itoa(attempt)))
		id = base36(sum[:])
		if !inUse(id) {
			break
		}
	}
	return id // in use too: names still differ by the capture's UID
}

func base36(b []byte) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	id := make([]byte, jobIDChars)
	for i := range id {
		// Two bytes per character: the remainder of 65536/36 favours no character by more than 0.06%.
		id[i] = digits[(int(b[2*i])<<8|int(b[2*i+1]))%len(digits)]
	}
	return string(id)
}

// Own returns the labels of objects that the operator creates for itself.
func Own() map[string]string {
	return map[string]string{
		sondev1.LabelAppName:      "sonde",
		sondev1.LabelAppPartOf:    "packet-capture-operator",
		sondev1.LabelAppManagedBy: "sonde",
	}
}

// Labels returns the labels of every object of an owner. The operator finds the object by the UID. The five labels of the
// source systems are for people, and are copied from owner where it has them.
func Labels(owner sondev1.AgentJobOwner) map[string]string {
	k, _ := kind.Of(owner.KindName())
	namespace, target := owner.AgentTarget()
	labels := map[string]string{
		sondev1.LabelAppName:      k.App,
		sondev1.LabelAppInstance:  k.App + "-" + namespace + "-" + target.Name,
		sondev1.LabelAppPartOf:    "packet-capture-operator",
		sondev1.LabelAppManagedBy: "sonde",
		sondev1.LabelAppCreatedBy: "packet-capture-operator",
	}
	for key, value := range labels {
		// No other label is copied: it could make a Service or a policy select our Pods.
		if own, ok := owner.GetLabels()[key]; ok {
			value = own
		}
		labels[key] = Cut(value, MaxLabel)
	}
	labels[sondev1.LabelUID] = string(owner.GetUID())
	labels[sondev1.LabelKind] = k.Name
	return labels
}

// Owner is the value of AnnotationOwner for an object: "namespace/name".
func Owner(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// ParseOwner parses the result of Owner.
func ParseOwner(value string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}
