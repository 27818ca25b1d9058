package capture

import (
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestMissingInterface checks that the status names an interface while a Pod lacks it, and that the result is not complete if it
// never appears.
func TestMissingInterface(t *testing.T) {
	t.Parallel()
	for name, appears := range map[string]bool{"appears": true, "never appears": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Interfaces = []string{"eth7"} }), deployment("web-1")...)
			w.progress = account.Account{State: account.StateCapturing, Reason: account.ReasonInterfaceNotFound, Message: "eth7: no such interface"}
			w.settle()
			w.agents(w.attach)
			res := w.settle()
			c := apimeta.FindStatusCondition(w.capture().Status.Conditions, sondev1.ConditionCapturing)
			if w.condition(sondev1.ConditionCapturing) != "True InterfaceNotFound" || !strings.Contains(c.Message, "Pod web-1 awaits an interface: eth7") {
				t.Errorf("Capturing is %+v", c)
			}
			if e := w.capture().Status.Pods[0]; e.Reason != sondev1.ReasonInterfaceNotFound || res.RequeueAfter > 10*time.Second {
				t.Errorf("entry %+v, next pass after %v", e, res.RequeueAfter)
			}
			end, want := done(account.ReasonInterfaceNotFound), []string{"Incomplete", "False InterfaceNotFound"}
			if appears {
				w.progress = account.Account{State: account.StateCapturing}
				w.clock.Step(10 * time.Second)
				w.settle()
				if got := w.condition(sondev1.ConditionCapturing); got != "True Capturing" {
					t.Errorf("Capturing is %s", got)
				}
				end, want = done(account.ReasonDuration), []string{"Completed", "True Duration"}
			}
			w.clock.Step(31 * time.Second)
			w.agents(w.end(end))
			w.settle()
			w.check("over", sondev1.Phase(want[0]), "False Ended", want[1])
		})
	}
}

// TestMissedInterface checks that a result is not complete if an interface was not captured the whole time.
func TestMissedInterface(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(31 * time.Second)
	end := done(account.ReasonInterfaceMissed)
	end.Message = "eth0: moved into another network namespace"
	w.agents(w.end(end))
	w.settle()
	w.check("over", sondev1.PhaseIncomplete, "False Ended", "False InterfaceMissed")
	if e := w.capture().Status.Pods[0]; e.Message != end.Message || len(e.Files) != 1 {
		t.Errorf("entry %+v", e)
	}
}
