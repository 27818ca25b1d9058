//go:build cluster

package main

import (
	"strings"
	"testing"
)

// testNodeAway kills a node, on which nothing may run afterwards, and brings it back with working Pods.
func (p program) testNodeAway(t *testing.T) {
	p.must(t, "node-stop", "n2")
	if left, err := clusterProcesses(p.layout, "n2"); err != nil || len(left) > 0 {
		t.Errorf("processes %v of n2 are left (%v)", left, err)
	}
	if left, err := clusterCgroups(p.layout, "n2"); err != nil || len(left) > 0 {
		t.Errorf("cgroups %v of n2 are left (%v)", left, err)
	}
	if out, err := p.run(t, "", "node-stop", "n2"); err == nil || !strings.Contains(out, "node n2 is not running") {
		t.Errorf("stop it again: %v, %q", err, out)
	}
	p.must(t, "node-start", "n2")
	if out, err := p.run(t, "", "node-start", "n2"); err == nil || !strings.Contains(out, "node n2 runs already") {
		t.Errorf("start it again: %v, %q", err, out)
	}
	p.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	for _, pod := range p.webPods(t, ".metadata.name") {
		p.eventually(t, "through", "kubectl", "exec", pod, "--", "echo", "through")
	}
}

// testAPIAway freezes and thaws the API server, then kills and restarts it. Written objects survive.
func (p program) testAPIAway(t *testing.T) {
	for _, args := range [][]string{{"api-stop", "--freeze"}, {"api-stop"}} {
		p.must(t, args...)
		if out, err := p.run(t, "", "kubectl", "get", "--raw", "/readyz", "--request-timeout=2s"); err == nil {
			t.Errorf("after %v the API server answers: %q", args, out)
		}
		p.must(t, "api-start")
		p.kubectl(t, "get", "deployment", "web")
	}
	p.must(t, "api-start") // of one that runs
	if out, err := p.run(t, "", "node-exec", "n1", "--", "true"); err != nil {
		t.Errorf("node-exec: %v, %q", err, out)
	}
}
