package cli

import (
	"context"
	"errors"
	"os"
	"sync"
)

// errInterrupted ends a command that the user wants to leave.
var errInterrupted = errors.New("interrupted")

// interrupts gives the first signal a softer meaning for as long as a command claims it.
type interrupts struct {
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	soft chan struct{}
}

// claim returns a channel that the next signal closes instead of ending the command.
func (i *interrupts) claim() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.soft = make(chan struct{})
	return i.soft
}

// release gives signals their usual meaning again.
func (i *interrupts) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.soft = nil
}

func (i *interrupts) listen(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			i.signal()
		case <-ctx.Done():
			return
		}
	}
}

func (i *interrupts) signal() {
	if !i.soften() {
		i.cancel(errInterrupted)
	}
}

// soften does what the first signal does as long as a command claims it, and reports whether one does.
func (i *interrupts) soften() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.soft == nil {
		return false
	}
	close(i.soft)
	i.soft = nil
	return true
}
