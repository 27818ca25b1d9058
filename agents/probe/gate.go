package probe

import (
	"context"
	"errors"
	"time"

	"github.com/sonde-operator/sonde/agents/gate"
)

// openGate opens the target's gate as soon as there is one: the probe is attached, and the Pod may start. That a gate
// stays closed is no reason to end a recording, and how it ended the Pod says itself.
func (p *Probe) openGate(ctx context.Context) {
	said := ""
	for {
		took, err := p.opens(ctx, p.options.PodUID)
		switch {
		case err == nil:
			p.stuck.Store(nil)
			p.log.Info("Opened the gate", "pod", p.options.PodName, "took", took.String())
			return
		case ctx.Err() != nil:
			p.log.Info("Ending before there was a gate to open", "pod", p.options.PodName)
			return
		case err.Error() != said:
			said = err.Error()
			p.log.Error("Opening the gate failed", "error", err)
		}
		if errors.Is(err, gate.ErrStuck) {
			p.stuck.Store(new("the Pod's gate was signalled and did not open, as when its processes are frozen: " + err.Error()))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.waits.retry):
		}
	}
}
