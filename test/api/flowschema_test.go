//go:build api

package api

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// The API server answers the manager at another priority level than the ServiceAccounts of tenants, whose requests wait for its
// webhook. Without the FlowSchema both have the same.
func TestManagerHasAPriorityLevelOfItsOwn(t *testing.T) {
	const manager, tenant = "system:serviceaccount:sonde-system:sonde-manager", "system:serviceaccount:shop:default"
	if got, want := priorityLevel(t, manager), priorityLevel(t, tenant); got != want {
		t.Errorf("the control: level %s without the FlowSchema, want %s as others", got, want)
	}
	b, err := os.ReadFile("../../config/manager/flow_schema.yaml")
	if err != nil {
		t.Fatal(err)
	}
	schema := &flowcontrolv1.FlowSchema{}
	if err := yaml.UnmarshalStrict(b, schema); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), schema) })
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return priorityLevel(t, manager) != priorityLevel(t, tenant), nil
	})
	if err != nil {
		t.Errorf("the manager's level is still that of tenants: %v", err)
	}
}

// priorityLevel is the UID of the level at which the API server answers a ServiceAccount, which may not do what is asked.
func priorityLevel(t *testing.T, user string) string {
	t.Helper()
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+"/api/v1/namespaces", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	level := resp.Header.Get("X-Kubernetes-PF-PriorityLevel-UID")
	if level == "" {
		t.Fatalf("status %d without a priority level: %v", resp.StatusCode, resp.Header)
	}
	return level
}
