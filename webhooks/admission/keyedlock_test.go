package admission

import (
	"context"
	"errors"
	"testing"
)

// TestKeyedLock: one holder for each key, other keys are free, and no memory is kept afterwards.
func TestKeyedLock(t *testing.T) {
	var l KeyedLock
	unlock, err := l.Lock(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Lock(ended, "shop"); !errors.Is(err, context.Canceled) {
		t.Errorf("locked twice: %v", err)
	}
	other, err := l.Lock(t.Context(), "bank")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	again, err := l.Lock(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if len(l.locks) != 0 {
		t.Errorf("locks that stay: %v", l.locks)
	}
}
