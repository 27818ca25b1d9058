package intercept

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// TestNamespaceMadeAnewThatCannotBeRead: a pass has read the Pods of a namespace that was made anew while the cache still had the earlier
// namespace. Then the API server does not say once which namespace there is. No Pod gets a carrier for the earlier request.
func TestNamespaceMadeAnewThatCannotBeRead(t *testing.T) {
	s := settled(t)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hub", Labels: map[string]string{sondev1.LabelHub: "true"}}})
	for s.inHub() == nil {
		s.requestFor("8h")
	}
	s.settle()
	s.makeAnew()
	m := s.leader
	for _, kind := range []string{"InterceptRequest", "Pod", "StatefulSet"} {
		for i := m.view.Informer(kind); m.view.Behind(i, s.clock.Now().Add(time.Second)); {
			m.view.Next(i)
		}
	}
	s.reconcile(m)
	failed := false
	m.r.Live = memapi.Mutant{
		Client: memapi.Client{Requests: m.requests, View: m.view, Live: true},
		OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
			if memapi.KeyOf(s.api.Scheme, o).Kind == "Namespace" && key.Name == "shop" && !failed {
				failed = true
				return apierrors.NewInternalError(context.DeadlineExceeded)
			}
			return c.Get(ctx, key, o)
		},
	}
	s.catchUp(s.clock.Now().Add(time.Second))
	s.reconcile(m)
	if q := s.inHub(); !failed || q.Ended() {
		t.Errorf("the API server failed: %t; the request is %s", failed, q.Status.Phase)
	}
	if s.Broken != "" {
		t.Error(s.Broken)
	}
	s.settle()
	if q := s.inHub(); !q.Ended() {
		t.Errorf("the request is %s, and its namespace was made anew", q.Status.Phase)
	}
}

// inHub returns a request in the hub.
func (s *schedule) inHub() *sondev1.InterceptRequest {
	for _, q := range memapi.Of[*sondev1.InterceptRequest](s.api.Objects, "InterceptRequest") {
		if q.Namespace == "hub" {
			return q
		}
	}
	return nil
}
