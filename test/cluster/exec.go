package cluster

import (
	"bytes"
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// ExecAs runs a command in a container, or attaches to it, as whom c is for; it returns what was printed.
func ExecAs(ctx context.Context, c *rest.Config, p *corev1.Pod, how, container string, command ...string) (string, error) {
	cs, err := rest.RESTClientFor(CoreConfig(c))
	if err != nil {
		return "", err
	}
	req := cs.Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource(how).
		Param("container", container).Param("stdout", "true").Param("stderr", "true")
	for _, a := range command {
		req = req.Param("command", a)
	}
	ex, err := remotecommand.NewSPDYExecutor(c, http.MethodPost, req.URL())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var out, errOut bytes.Buffer
	err = ex.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
	return out.String() + errOut.String(), err
}

// ShellSpec is a Pod to run busybox's programs in.
func ShellSpec() corev1.PodSpec {
	spec := PodSpec()
	spec.Containers[0].Image, spec.Containers[0].Command = Busybox, []string{"sleep", "3600"}
	return spec
}

// Busybox is an image with the usual programs, which the local cluster has.
const Busybox = "sonde.local/busybox:1"
