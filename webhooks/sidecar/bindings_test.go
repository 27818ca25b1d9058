package sidecar

import (
	"sync"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// TestBindings checks what counts against maxBindings, which is 2.
func TestBindings(t *testing.T) {
	cached, clk := webhooktest.Reader(t), webhooktest.Clock()
	b, f := NewBindings(cached, clk), fluentPVC("logs")
	admit := func(what, namespace, claimName string, dryRun, want bool) {
		t.Helper()
		if err := b.Admit(t.Context(), namespace, f, claimName, dryRun); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	create := func(o client.Object) {
		t.Helper()
		if err := cached.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create(binding("dumps-1", "dumps"))
	admit("the first", "shop", "logs-1", false, true)
	admit("a dry run", "shop", "logs-x", true, true)
	admit("the second", "shop", "logs-2", false, true)
	admit("the third", "shop", "logs-3", false, false)
	admit("a dry run beyond the bound", "shop", "logs-x", true, false)
	admit("the second again", "shop", "logs-2", false, true)
	admit("another namespace", "bank", "logs-9", false, true)
	create(binding("logs-1", "logs"))
	admit("a Pod with its binding counts once", "shop", "logs-2", false, true)
	clk.SetTime(clk.Now().Add(admittedFor))
	admit("the second was never created", "shop", "logs-3", false, true)
	create(binding("logs-4", "logs"))
	admit("full by bindings", "shop", "logs-5", false, false)
	f.Spec.MaxBindings = 0
	admit("the default of the schema", "shop", "logs-5", false, true)
}

// TestBindingsConcurrently checks that Pods of one rollout do not pass the bound together.
func TestBindingsConcurrently(t *testing.T) {
	b := NewBindings(webhooktest.Reader(t), webhooktest.Clock())
	var admitted atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if b.Admit(t.Context(), "shop", fluentPVC("logs"), "logs-"+string(rune('a'+i)), false) == nil {
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 2 {
		t.Errorf("%d Pods admitted, want 2", n)
	}
}
