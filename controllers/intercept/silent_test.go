package intercept

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/memapi"
)

// hideStowaway lets the API server fail to return Stowaway's object of this type until the returned function is called.
func hideStowaway[T client.Object](s *schedule) (show func()) {
	live := s.leader.r.Live
	s.leader.r.Live = memapi.Mutant{Client: live.(client.Client), OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
		if _, ok := o.(T); ok && key.Name == tunnel.Name {
			return errors.New("the API server does not answer")
		}
		return c.Get(ctx, key, o)
	}}
	return func() { s.leader.r.Live = live }
}

// TestEndsWithoutStowawaysObjects: what ends does not wait until the API server returns Stowaway's objects again, which only creations
// need.
func TestEndsWithoutStowawaysObjects(t *testing.T) {
	hide := map[string]func(*schedule) func(){"Service": hideStowaway[*corev1.Service], "Secret": hideStowaway[*corev1.Secret]}
	for hidden, hide := range hide {
		for name, tc := range map[string]struct {
			end   func(*schedule)
			phase sondev1.InterceptPhase
		}{
			"expired":         {func(s *schedule) { s.clock.Step(8 * time.Hour) }, sondev1.InterceptEnded},
			"right withdrawn": {func(s *schedule) { s.lacks = map[string]bool{"user0": true, "user1": true, "user2": true} }, sondev1.InterceptFailed},
		} {
			t.Run(name+" without the "+hidden, func(t *testing.T) {
				s := settled(t)
				show := hide(s)
				s.podOn("n1")
				s.pass()
				s.pass()
				if routes, carriers := len(s.end.state.Routes), s.carriersKept(); routes != 1 || carriers != 2 || s.theRequest().Status.Phase != sondev1.InterceptActive {
					t.Errorf("%d routes, %d carriers and the phase %s, want 1, 2 and Active", routes, carriers, s.theRequest().Status.Phase)
				}
				tc.end(s)
				s.pass()
				if n, phase := len(s.end.state.Routes), s.theRequest().Status.Phase; n != 0 || phase != tc.phase {
					t.Errorf("%d routes are left, and the phase is %s, want 0 and %s", n, phase, tc.phase)
				}
				s.settle()
				if n := s.carriersKept(); n != 0 || s.end.service() == nil {
					t.Errorf("%d carriers are left, want none; Stowaway's Service is there: %t", n, s.end.service() != nil)
				}
				show()
				s.settle()
				if s.end.service() != nil {
					t.Error("Stowaway's Service is left")
				}
			})
		}
	}
}

// TestStowawaysObjectsComeBack: Pods that started meanwhile are intercepted, and a manager that has read nothing creates nothing.
func TestStowawaysObjectsComeBack(t *testing.T) {
	s := settled(t)
	show := hideStowaway[*corev1.Secret](s)
	s.podOn("n1")
	s.settle()
	show()
	s.settle()
	if n := s.carriersKept(); n != 3 {
		t.Errorf("%d carriers, want 3", n)
	}
	s.leader = s.newReplica(0)
	hideStowaway[*corev1.Service](s)
	s.podOn("n1")
	s.leader.r.Limits.PodsPerCapture = 4
	s.settle()
	if n := s.carriersKept(); n != 3 || len(s.end.state.Routes) != 1 {
		t.Errorf("%d carriers and %d routes, want 3 and 1", n, len(s.end.state.Routes))
	}
}
