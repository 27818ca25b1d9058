package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace creates a namespace and deletes it when the test ends.
func Namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels}}
	if err := Admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), ns) })
	return ns.Name
}

// Eventually calls check until it returns nil. When the time is over, the test fails with the last error of check.
func Eventually(t *testing.T, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		// Keep the last error that check found itself. An error that only reports the deadline, also from the client's
		// rate limiter, says less.
		if last == nil || ctx.Err() == nil && !strings.Contains(err.Error(), "would exceed context deadline") {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s; last error: %v", what, within, last)
		case <-tick.C:
		}
	}
}
