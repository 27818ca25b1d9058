package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// UDPPort is the port of the workload's sink.
const UDPPort = 9999

// Sent is the count that the workload's sender prints.
type Sent struct {
	Run    uint32 `json:"run"`
	First  uint64 `json:"first"`
	Count  uint64 `json:"count"`
	Failed uint64 `json:"failed"`
}

// Send sends count numbered packets from a Pod and returns the sender's count.
func Send(t *testing.T, from *corev1.Pod, to string, run uint32, count int, extra ...string) Sent {
	t.Helper()
	s, err := TrySend(t.Context(), from, to, run, count, extra...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TrySend is Send for goroutines, which must not call t.Fatal.
func TrySend(ctx context.Context, from *corev1.Pod, to string, run uint32, count int, extra ...string) (Sent, error) {
	command := append([]string{"/workload", "send", "-to", to, "-run", strconv.Itoa(int(run)), "-count", strconv.Itoa(count)}, extra...)
	out, err := Exec(ctx, from, command...)
	if err != nil {
		return Sent{}, err
	}
	var s Sent
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return Sent{}, fmt.Errorf("the sender printed %q: %w", out, err)
	}
	if s.Count == 0 || s.Failed != 0 {
		return Sent{}, fmt.Errorf("sender in %s: %+v, want packets sent and none failed", from.Name, s)
	}
	return s, nil
}

// UDPAddr returns the address of the sink in a Pod.
func UDPAddr(ip string) string { return fmt.Sprintf("%s:%d", ip, UDPPort) }
