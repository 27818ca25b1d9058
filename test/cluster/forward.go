package cluster

import (
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward forwards a free local port to a port of a Pod until stop is called.
func Forward(p *corev1.Pod, port int) (address string, stop func(), err error) {
	cs, err := kubernetes.NewForConfig(Config)
	if err != nil {
		return "", nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(Config)
	if err != nil {
		return "", nil, err
	}
	url := cs.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	end, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	fw, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, end, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	go func() { failed <- fw.ForwardPorts() }()
	select {
	case err := <-failed:
		return "", nil, err
	case <-ready:
	}
	ports, err := fw.GetPorts()
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), func() { close(end) }, nil
}
