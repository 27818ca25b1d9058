package sidecar

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// Bounds of a Pod with a FluentPVC. Its lists are decoded and copied, and an empty container takes 200 times its JSON.
const (
	maxListBytes = 256 << 10
	maxVolumes   = 1024
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
func decodeLists(raw []byte, pod *corev1.Pod) error {
	var l lists
	if err := admission.Decode(raw, &l); err != nil {
		return err
	}
	s := &l.Spec
	if n := len(s.Volumes) + len(s.InitContainers) + len(s.Containers) + len(s.EphemeralContainers); n > maxListBytes {
		return admission.Invalid("its volumes and containers have %d KiB as JSON, and those of a Pod with a FluentPVC may have %d KiB: move large values into a ConfigMap", n>>10, maxListBytes>>10)
	}
	containers := 0
	for _, list := range []struct {
		raw   json.RawMessage
		count *int
		into  any
	}{
		{s.Volumes, new(int), &pod.Spec.Volumes},
		{s.InitContainers, &containers, &pod.Spec.InitContainers},
		{s.Containers, &containers, &pod.Spec.Containers},
		{s.EphemeralContainers, &containers, &pod.Spec.EphemeralContainers},
	} {
		if len(list.raw) == 0 {
			continue
		}
		var elements []json.RawMessage
		if err := admission.Decode(list.raw, &elements); err != nil {
			return err
		}
		*list.count += len(elements)
		if containers > sidecar.MaxContainers || list.count != &containers && *list.count > maxVolumes {
			return admission.Invalid("it has more than %d containers or %d volumes, which a Pod with a FluentPVC may have: distribute them over several Pods", sidecar.MaxContainers, maxVolumes)
		}
		if err := admission.Decode(list.raw, list.into); err != nil {
			return err
		}
	}
	pod.Spec.ServiceAccountName = s.ServiceAccountName
	return nil
}
