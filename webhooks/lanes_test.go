package webhooks

import (
	"context"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// slowFilters compiles "slow" for as long as the request lasts, and says when it begins.
type slowFilters struct{ begun chan string }

func (f *slowFilters) Compile(ctx context.Context, expression string, _ pcapfilter.LinkType, _ int) (bpfprog.Program, error) {
	if expression == "slow" {
		f.begun <- expression
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return nil, nil
}

// TestANamespaceWaitsForItsOwnFilters: what takes long is paid by those who ask for it.
func TestANamespaceWaitsForItsOwnFilters(t *testing.T) {
	slow := &slowFilters{begun: make(chan string, 8)}
	checks := &PacketCaptureChecks{Filters: slow}
	h := &CaptureHandler{
		Kind: kind.PacketCapture, Checks: checks,
		Live: liveReader(t, world()...), Reviews: may("pods/shop", "pods/bank"),
		Key: testKey, OperatorNamespace: "sonde-system", Clock: fixedClock(),
	}
	ask := func(ctx context.Context, ns, workload, filter string) bool {
		return h.Handle(ctx, request(t, admissionv1.Create, "PacketCapture", ns, &sondev1.PacketCapture{
			Spec: sondev1.PacketCaptureSpec{TargetDeployment: workload, Duration: "30", RetainFor: "1h", Filter: filter},
		}, nil)).Allowed
	}
	first, cancel := context.WithCancel(t.Context())
	answers := make(chan bool, 2)
	go func() { answers <- ask(first, "shop", "web", "slow") }()
	<-slow.begun
	second, give := context.WithCancel(t.Context())
	go func() { answers <- ask(second, "shop", "web", "slow") }()

	if !ask(t.Context(), "bank", "vault", "tcp") {
		t.Error("a filter of another namespace is held up")
	}
	give() // who waits in his own lane goes without an answer, and without having begun
	if <-answers || len(slow.begun) != 0 {
		t.Error("two filters of a namespace are compiled at once")
	}
	cancel()
	<-answers
	if !ask(t.Context(), "shop", "web", "tcp") {
		t.Error("the lane stays closed")
	}
	if len(checks.lanes.each) != 0 {
		t.Errorf("lanes that stay: %v", checks.lanes.each)
	}
}

func TestLanesEndWithTheContext(t *testing.T) {
	var l lanes
	leave, err := l.enter(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.enter(ended, "shop"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	leave()
	if len(l.each) != 0 {
		t.Errorf("lanes that stay: %v", l.each)
	}
}
