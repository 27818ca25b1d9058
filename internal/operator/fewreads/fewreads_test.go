package fewreads_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/fewreads"
)

// slow is an API server whose answers wait.
type slow struct {
	client.Reader
	begun, leave chan struct{}
}

func (s *slow) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	s.begun <- struct{}{}
	<-s.leave
	return nil
}

func (s *slow) List(context.Context, client.ObjectList, ...client.ListOption) error {
	s.begun <- struct{}{}
	<-s.leave
	return nil
}

// TestPlaces: however many requests there are, four objects or lists of tenants are read at a time, and a request that ends
// waits no longer.
func TestPlaces(t *testing.T) {
	const most, requests, own = 4, 64, "sonde-system"
	server := &slow{begun: make(chan struct{}, requests), leave: make(chan struct{})}
	live := fewreads.New(server, own, fewreads.Limits{Places: most})
	get := func(ctx context.Context) error {
		return live.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &corev1.Pod{})
	}
	done := make(chan error, requests)
	for range most {
		go func() { done <- get(t.Context()) }()
		<-server.begun
	}
	ended := errors.New("the request has ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if err := get(ctx); !errors.Is(err, ended) {
		t.Errorf("got %v", err)
	}
	for _, namespace := range []string{"", own} { // these do not wait
		go func() {
			done <- live.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, &corev1.ConfigMap{})
		}()
		<-server.begun
	}
	for i := range requests - most {
		go func() {
			if i%2 == 0 {
				done <- live.List(t.Context(), &corev1.PodList{}, client.InNamespace("shop"))
			} else {
				done <- get(t.Context())
			}
		}()
	}
	close(server.leave)
	for range requests + 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := most + len(server.begun); n != requests {
		t.Errorf("%d objects were read, want %d", n, requests)
	}
}
