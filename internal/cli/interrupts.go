package cli

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
)

// errInterrupted ends a command that the user interrupted.
var errInterrupted = errors.New("interrupted")

// interrupts ends the command on a signal, unless the command has claimed the first signal for another purpose.
type interrupts struct {
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	claimed  chan struct{}
	stopping bool // a claim was delivered
}

// claim returns a channel. The next signal closes it instead of ending the command.
func (i *interrupts) claim() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claimed = make(chan struct{})
	return i.claimed
}

// release ends the claim.
func (i *interrupts) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claimed = nil
}

func (i *interrupts) listen(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				i.hangUp()
			} else {
				i.signal()
			}
		case <-ctx.Done():
			return
		}
	}
}

func (i *interrupts) signal() {
	if !i.deliver() {
		i.cancel(errInterrupted)
	}
}

// hangUp is the signal of a terminal that was closed. It comes twice: from the kernel and from the shell. A failed write to the terminal may
// have stopped the command before. So the signal does not end a command that already stops.
func (i *interrupts) hangUp() {
	if !i.deliver() && !i.stops() {
		i.cancel(errInterrupted)
	}
}

func (i *interrupts) stops() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopping
}

// deliver closes the channel of the claim. It returns false if there is no claim.
func (i *interrupts) deliver() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.claimed == nil {
		return false
	}
	close(i.claimed)
	i.claimed, i.stopping = nil, true
	return true
}
