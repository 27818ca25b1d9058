package probe

import (
	"context"
	"errors"
	"time"

	"github.com/sonde-operator/sonde/agents/gate"
)

// openGate opens the target's gate when it starts, and reports that it did. If the gate stays closed the recording
// continues. The gate's own termination message says how it ended.
func (p *Probe) openGate(ctx context.Context) {
	lastError := ""
	for {
		opened, err := p.awaitGate(ctx, p.options.PodUID)
		switch {
		case err == nil:
			p.gateStuck.Store(nil)
			p.report.gateOpened(opened.ContainerID)
			p.log.Info("Opened the gate", "pod", p.options.PodName, "took", opened.Took.String())
			return
		case ctx.Err() != nil:
			p.log.Info("Ending before there was a gate to open", "pod", p.options.PodName)
			return
		case err.Error() != lastError:
			lastError = err.Error()
			p.log.Error("Opening the gate failed", "error", err)
		}
		if errors.Is(err, gate.ErrStuck) {
			p.gateStuck.Store(new("the Pod's gate was signalled and did not open, as when its processes are frozen: " + err.Error()))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.waits.retry):
		}
	}
}
