package admission

import (
	"context"
	"sync"
)

// KeyedLock is a lock for each key, such as a namespace. The zero value is ready to use. It keeps no memory for a key that
// is neither locked nor waited for.
type KeyedLock struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	free  chan struct{} // holds one token while the key is not locked
	users int           // the holder and those who wait
}

// Lock waits for the lock of key until ctx ends, and then returns the cause. The caller calls unlock once.
func (l *KeyedLock) Lock(ctx context.Context, key string) (unlock func(), err error) {
	own := l.acquire(key)
	select {
	case <-own.free:
		return func() {
			own.free <- struct{}{}
			l.release(key)
		}, nil
	case <-ctx.Done():
		l.release(key)
		return nil, context.Cause(ctx)
	}
}

func (l *KeyedLock) acquire(key string) *keyLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.locks[key]
	if own == nil {
		own = &keyLock{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		if l.locks == nil {
			l.locks = map[string]*keyLock{}
		}
		l.locks[key] = own
	}
	own.users++
	return own
}

func (l *KeyedLock) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.locks[key]; own.users > 1 {
		own.users--
		return
	}
	delete(l.locks, key)
}
