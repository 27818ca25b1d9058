package sidecar

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Bounds of a Pod with a FluentPVC. Its lists are decoded and copied, and an empty container takes 200 times its JSON.
const (
	maxListBytes = 256 << 10
	maxVolumes   = 1024
	// maxAgainBytes bounds the bytes of a Pod to which this webhook has added its part before. That part does not count. But any user can
	// write a Pod that looks so, and fill it with small elements.
	maxAgainBytes = 2 * maxListBytes
)

// metadata are the fields by which a Pod names its FluentPVC.
type metadata struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// lists are the fields of a Pod that Inject reads, besides its metadata.
type lists struct {
	Spec struct {
		Volumes             json.RawMessage `json:"volumes"`
		InitContainers      json.RawMessage `json:"initContainers"`
		Containers          json.RawMessage `json:"containers"`
		EphemeralContainers json.RawMessage `json:"ephemeralContainers"`
		ServiceAccountName  string          `json:"serviceAccountName"`
	} `json:"spec"`
}

// decodeMetadata returns a Pod with nothing but the labels and annotations of the Pod in a review.
func decodeMetadata(raw []byte) (*corev1.Pod, error) {
	var m metadata
	if err := admission.Decode(raw, &m); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	pod.Labels, pod.Annotations = m.Metadata.Labels, m.Metadata.Annotations
	return pod, nil
}

// decodeLists reads the other fields that Inject needs into a Pod. A Pod with 560,000 empty tolerations takes 155 MiB as a whole.
func decodeLists(raw []byte, pod *corev1.Pod, t *sondev1.FluentPVCSpec) error {
	var l lists
	if err := admission.Decode(raw, &l); err != nil {
		return err
	}
	if err := checkSize(&l, pod, t); err != nil {
		return err
	}
	for _, list := range []struct {
		raw  json.RawMessage
		into any
	}{
		{l.Spec.Volumes, &pod.Spec.Volumes},
		{l.Spec.InitContainers, &pod.Spec.InitContainers},
		{l.Spec.Containers, &pod.Spec.Containers},
		{l.Spec.EphemeralContainers, &pod.Spec.EphemeralContainers},
	} {
		if len(list.raw) == 0 {
			continue
		}
		if err := admission.Decode(list.raw, list.into); err != nil {
			return err
		}
	}
	pod.Spec.ServiceAccountName = l.Spec.ServiceAccountName
	return nil
}

// checkSize returns an error for lists beyond the bounds. A Pod with the annotation of a claim has what the FluentPVC adds already: the API
// server calls this webhook again if another one has changed the Pod since, or the Pod is a copy. What the FluentPVC adds does not count,
// nor does the gate of a Trace. Package sidecar counts exactly.
func checkSize(l *lists, pod *corev1.Pod, t *sondev1.FluentPVCSpec) error {
	s := &l.Spec
	bytes := len(s.Volumes) + len(s.InitContainers) + len(s.Containers) + len(s.EphemeralContainers)
	_, again := pod.Annotations[sondev1.AnnotationClaim]
	mostBytes, mostContainers, mostVolumes := maxListBytes, sidecar.MaxContainers+1, maxVolumes
	if again {
		mostBytes = maxAgainBytes
	}
	if bytes > mostBytes {
		return tooLarge(bytes, mostBytes)
	}
	volumes, err := count(s.Volumes)
	if err != nil {
		return err
	}
	containers, err := count(s.InitContainers, s.Containers, s.EphemeralContainers)
	if err != nil {
		return err
	}
	if again {
		mostContainers++
		addedVolumes, addedBytes, err := sidecar.Added(t, min(containers, mostContainers))
		if err != nil {
			return err
		}
		mostVolumes, mostBytes = mostVolumes+addedVolumes, min(maxListBytes+addedBytes, mostBytes)
	}
	switch {
	case containers > mostContainers || volumes > mostVolumes:
		return admission.Invalid("it has more than %d containers or %d volumes, which a Pod with a FluentPVC may have: distribute them over several Pods", sidecar.MaxContainers, maxVolumes)
	case bytes > mostBytes:
		return tooLarge(bytes, mostBytes)
	}
	return nil
}

func tooLarge(bytes, most int) error {
	return admission.Invalid("its volumes and containers have %d KiB as JSON, and those of a Pod with a FluentPVC may have %d KiB: move large values into a ConfigMap", bytes>>10, most>>10)
}

// element of a list that is only counted. A list of them takes no memory.
type element struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*element) UnmarshalJSON([]byte) error { return nil }

// count returns how many elements lists have together.
func count(lists ...json.RawMessage) (n int, err error) {
	for _, list := range lists {
		if len(list) == 0 {
			continue
		}
		var elements []element
		if err := admission.Decode(list, &elements); err != nil {
			return 0, err
		}
		n += len(elements)
	}
	return n, nil
}
