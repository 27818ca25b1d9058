//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// For a minute of an unchanged world with running captures, the manager writes nothing but its lease.
func TestIdleManagerWritesNothing(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 2, "sink")
	for range 2 {
		capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	}
	// What the start itself makes is written by then: the last write is awaited, not a time.
	eventually(t, time.Minute, "five quiet seconds", quietFor(t, 5*time.Second))
	from := time.Now()
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	for _, e := range managerWrites(t, from) {
		t.Errorf("%s %s", e.Verb, e.RequestURI)
	}
}

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations"`
}

// managerWrites returns the manager's writing requests since a time, but for leases, which are written by the clock.
func managerWrites(t *testing.T, since time.Time) calls {
	t.Helper()
	return managerCalls(t, since).writes()
}

// quietFor says whether the manager's last write is at least d ago.
func quietFor(t *testing.T, d time.Duration) func(context.Context) error {
	t.Helper()
	return func(context.Context) error {
		if n := len(managerWrites(t, time.Now().Add(-d))); n > 0 {
			return fmt.Errorf("%d writes in the last %s", n, d)
		}
		return nil
	}
}
