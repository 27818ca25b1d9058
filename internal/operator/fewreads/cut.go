package fewreads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// ErrTooLarge is the error of a read of an object that has more bytes than Limits allow.
var ErrTooLarge = errors.New("the object is too large to read")

// maxKeptBytes bounds what is decoded of one object, such as its containers' names, its selector and its owners.
const maxKeptBytes = 256 << 10

// kept are the fields of Pods and workloads that the manager reads live. A field that is not here is not decoded: 740,000 empty
// terms of node affinity have 1.4 MiB in etcd, and take 24 times as much as Go structs.
type kept struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name              string                  `json:"name,omitempty"`
		Namespace         string                  `json:"namespace,omitempty"`
		UID               string                  `json:"uid,omitempty"`
		ResourceVersion   string                  `json:"resourceVersion,omitempty"`
		CreationTimestamp *metav1.Time            `json:"creationTimestamp,omitempty"`
		DeletionTimestamp *metav1.Time            `json:"deletionTimestamp,omitempty"`
		DeletionGrace     *int64                  `json:"deletionGracePeriodSeconds,omitempty"`
		OwnerReferences   []metav1.OwnerReference `json:"ownerReferences,omitempty"`
		Labels            picked[podLabels]       `json:"labels,omitempty"`
		Annotations       picked[podAnnotations]  `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		podSpec

		Selector json.RawMessage `json:"selector,omitempty"`
		Template *struct {
			Spec podSpec `json:"spec"`
		} `json:"template,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		Phase                 corev1.PodPhase          `json:"phase,omitempty"`
		PodIP                 string                   `json:"podIP,omitempty"`
		StartTime             *metav1.Time             `json:"startTime,omitempty"`
		InitContainerStatuses []corev1.ContainerStatus `json:"initContainerStatuses,omitempty"`
		ContainerStatuses     []containerStatus        `json:"containerStatuses,omitempty"`
	} `json:"status,omitzero"`
}

// containerStatus is whether a container runs, since when, and when it ended.
type containerStatus struct {
	Name         string `json:"name"`
	RestartCount int32  `json:"restartCount"`
	State        struct {
		Running *struct {
			StartedAt *metav1.Time `json:"startedAt,omitempty"`
		} `json:"running,omitempty"`
		Terminated *terminated `json:"terminated,omitempty"`
	} `json:"state,omitzero"`
	LastState struct {
		Terminated *terminated `json:"terminated,omitempty"`
	} `json:"lastState,omitzero"`
}

type terminated struct {
	ExitCode   int32        `json:"exitCode"`
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// keptOwned are the fields of the claims and Jobs of FluentPVCs that the manager reads live, and of the metadata of other objects.
type keptOwned struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name              string                   `json:"name,omitempty"`
		Namespace         string                   `json:"namespace,omitempty"`
		UID               string                   `json:"uid,omitempty"`
		ResourceVersion   string                   `json:"resourceVersion,omitempty"`
		DeletionTimestamp *metav1.Time             `json:"deletionTimestamp,omitempty"`
		OwnerReferences   []metav1.OwnerReference  `json:"ownerReferences,omitempty"`
		Labels            picked[ownedLabels]      `json:"labels,omitempty"`
		Annotations       picked[ownedAnnotations] `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		VolumeName string `json:"volumeName,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		Phase      string      `json:"phase,omitempty"`
		Conditions []condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

type podSpec struct {
	NodeName            string      `json:"nodeName,omitempty"`
	HostNetwork         bool        `json:"hostNetwork,omitempty"`
	HostPID             bool        `json:"hostPID,omitempty"`
	RuntimeClassName    *string     `json:"runtimeClassName,omitempty"`
	Containers          []container `json:"containers,omitempty"`
	InitContainers      []container `json:"initContainers,omitempty"`
	EphemeralContainers []container `json:"ephemeralContainers,omitempty"`
	ServiceAccountName  string      `json:"serviceAccountName,omitempty"`
}

type container struct {
	Name string `json:"name"`
	// Ports are declared; the webhook of InterceptRequests compares them.
	Ports []struct {
		ContainerPort int32 `json:"containerPort"`
	} `json:"ports,omitempty"`
}

type keptList struct {
	metav1.TypeMeta `json:",inline"`

	Metadata metav1.ListMeta `json:"metadata"`
	Items    []kept          `json:"items"`
}

// cutKey is the key of contexts whose answers are cut.
type cutKey struct{}

// cutting says what an answer is cut to.
type cutting struct {
	// into returns an empty struct with the fields that stay.
	into func() any
	// most bytes of JSON before and after; zero if there is no bound.
	most, kept int64
}

// cut asks Cut for a part of an object.
func (r *reader) cut(ctx context.Context, o client.Object) context.Context {
	bound := int64(maxKeptBytes)
	if r.limits.Unbounded {
		bound = 0
	}
	switch o := o.(type) {
	case *corev1.Pod, *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		return context.WithValue(ctx, cutKey{}, cutting{func() any { return &kept{} }, r.limits.Bytes, bound})
	case *metav1.PartialObjectMetadata:
		if o.GroupVersionKind().Group == sondev1.GroupVersion.Group {
			return ctx // the webhooks bound these, and the managed fields of captures are read
		}
		return context.WithValue(ctx, cutKey{}, cutting{func() any { return &keptOwned{} }, r.limits.Bytes, bound})
	case *corev1.PersistentVolumeClaim, *batchv1.Job:
		return context.WithValue(ctx, cutKey{}, cutting{func() any { return &keptOwned{} }, r.limits.Bytes, bound})
	default:
		return ctx
	}
}

// cutList asks Cut for parts of the Pods, or of the metadata of objects, of a tenant's namespace.
func (r *reader) cutList(ctx context.Context, list client.ObjectList, opts []client.ListOption) context.Context {
	if in := (&client.ListOptions{}).ApplyOptions(opts).Namespace; in == "" || in == r.own {
		return ctx
	}
	switch list.(type) {
	case *corev1.PodList, *metav1.PartialObjectMetadataList:
		return context.WithValue(ctx, cutKey{}, cutting{into: func() any { return &keptList{} }})
	default:
		return ctx
	}
}

// Cut wraps the transport of a client (rest.Config.Wrap) that readers of this package read from. It drops what they do not need
// before it is decoded. The answers come as JSON: of that, encoding/json skips fields without taking memory.
func Cut(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(cutKey{}).(cutting)
	if !ok {
		return t.RoundTripper.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", strings.ReplaceAll(req.Header.Get("Accept"), "application/vnd.kubernetes.protobuf", "application/json"))
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := c.part(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// part returns the fields that stay of the JSON of an answer.
func (c cutting) part(from io.Reader) ([]byte, error) {
	if c.most > 0 {
		from = io.LimitReader(from, c.most+1)
	}
	whole, err := io.ReadAll(from)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read an object: %w", err)
	case c.most > 0 && int64(len(whole)) > c.most:
		return nil, fmt.Errorf("%w: it has more than %d KiB as JSON", ErrTooLarge, c.most>>10)
	}
	into := c.into()
	if err := json.Unmarshal(whole, into); err != nil {
		return nil, fmt.Errorf("decode an object: %w", err)
	}
	part, err := json.Marshal(into)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode a part of an object: %w", err)
	case c.kept > 0 && int64(len(part)) > c.kept:
		return nil, fmt.Errorf("%w: its containers, selector and owners have more than %d KiB as JSON", ErrTooLarge, c.kept>>10)
	}
	return part, nil
}
