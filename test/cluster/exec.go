package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// ExecAs runs a command in a container, or attaches to the container, with the identity of c. It returns the standard
// output followed by the standard error.
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

// Exec runs a command in container c of a Pod and returns its standard output.
func Exec(ctx context.Context, p *corev1.Pod, command ...string) (string, error) {
	cs, err := kubernetes.NewForConfig(Config)
	if err != nil {
		return "", err
	}
	req := cs.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("exec").
		Param("container", "c").Param("stdout", "true").Param("stderr", "true")
	for _, a := range command {
		req = req.Param("command", a)
	}
	ex, err := remotecommand.NewSPDYExecutor(Config, "POST", req.URL())
	if err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	if err := ex.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return out.String(), fmt.Errorf("exec %v in %s: %w: %s", command, p.Name, err, errOut.String())
	}
	return out.String(), nil
}

// Logs returns the log of container c of a Pod.
func Logs(ctx context.Context, p *corev1.Pod) (string, error) {
	cs, err := kubernetes.NewForConfig(Config)
	if err != nil {
		return "", err
	}
	b, err := cs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: "c"}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("logs of %s: %w", p.Name, err)
	}
	return string(b), nil
}
