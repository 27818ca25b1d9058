package names

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Source lists objects of the core API as JSON.
type Source interface {
	// List returns a page of a resource, which the caller closes. An empty namespace means all. The token of the page before
	// continues a list.
	List(ctx context.Context, resource, namespace, token string) (io.ReadCloser, error)
}

// NewSource returns the API server.
func NewSource(config *rest.Config) (Source, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath, c.ContentType = &corev1.SchemeGroupVersion, "/api", "application/json"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return apiServer{r}, nil
}

type apiServer struct{ rest *rest.RESTClient }

// List implements Source.
func (a apiServer) List(ctx context.Context, resource, namespace, token string) (io.ReadCloser, error) {
	options := &metav1.ListOptions{Limit: page, Continue: token}
	return a.rest.Get().Namespace(namespace).Resource(resource).VersionedParams(options, scheme.ParameterCodec).Stream(ctx)
}

// object has the fields of a Pod or Service that are read. Others are skipped without taking memory: whoever may create Pods can
// make one that takes 32 MiB as a corev1.Pod.
type object struct {
	Metadata struct {
		Name              string    `json:"name"`
		Namespace         string    `json:"namespace"`
		UID               string    `json:"uid"`
		CreationTimestamp time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool     `json:"hostNetwork"`
		ClusterIPs  []string `json:"clusterIPs"`
	} `json:"spec"`
	Status struct {
		Phase  corev1.PodPhase `json:"phase"`
		PodIPs []corev1.PodIP  `json:"podIPs"`
	} `json:"status"`
}

// decode calls each with the objects of a page, one after the other, and returns the token of the next page.
func decode(page io.Reader, each func(*object)) (token string, err error) {
	d := json.NewDecoder(page)
	first, err := d.Token()
	if err == nil && first != json.Delim('{') {
		err = fmt.Errorf("the API server's list begins with %v", first)
	}
	if err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		switch key {
		case "metadata":
			var m metav1.ListMeta
			err = d.Decode(&m)
			token = m.Continue
		case "items":
			err = decodeItems(d, each)
		default:
			var skipped json.RawMessage // kind and apiVersion
			err = d.Decode(&skipped)
		}
		if err != nil {
			return "", err
		}
	}
	return token, nil
}

func decodeItems(d *json.Decoder, each func(*object)) error {
	first, err := d.Token()
	switch {
	case err != nil || first == nil: // null
		return err
	case first != json.Delim('['):
		return fmt.Errorf("the items of the API server's list begin with %v", first)
	}
	for d.More() {
		var o object
		if err := d.Decode(&o); err != nil {
			return err
		}
		each(&o)
	}
	_, err = d.Token()
	return err
}
