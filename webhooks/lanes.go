package webhooks

import (
	"context"
	"fmt"
	"sync"
)

// lanes let one request of each namespace at a time go on to what all share: a filter that takes long
// to refuse holds up those of its own namespace, and of another at most one. The zero value is ready.
type lanes struct {
	mu   sync.Mutex
	each map[string]*lane
}

type lane struct {
	free  chan struct{} // holds one token while nobody is in the lane
	users int           // in it, or waiting
}

// enter waits for the lane of a namespace until ctx ends. The caller leaves it afterwards.
func (l *lanes) enter(ctx context.Context, namespace string) (leave func(), err error) {
	own := l.join(namespace)
	select {
	case <-own.free:
		return func() {
			own.free <- struct{}{}
			l.part(namespace)
		}, nil
	case <-ctx.Done():
		l.part(namespace)
		return nil, fmt.Errorf("wait for other filters of namespace %s: %w", namespace, context.Cause(ctx))
	}
}

func (l *lanes) join(namespace string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.each[namespace]
	if own == nil {
		own = &lane{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		if l.each == nil {
			l.each = map[string]*lane{}
		}
		l.each[namespace] = own
	}
	own.users++
	return own
}

func (l *lanes) part(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.each[namespace]; own.users > 1 {
		own.users--
		return
	}
	delete(l.each, namespace)
}
