//go:build cluster

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const claims = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: closed}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`

// claimUser is a Pod on a node that runs a command as uid 1000, with a claim at /data. For a claim that waits for its
// first consumer the scheduler must choose the node, so the Pod has a nodeSelector and no nodeName.
type claimUser struct{ name, node, claim, securityContext, command string }

func (u claimUser) manifest() string {
	return strings.NewReplacer("NAME", u.name, "NODE", u.node, "CLAIM", u.claim, "CONTEXT", u.securityContext, "COMMAND", u.command).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {CONTEXT}
  containers:
  - name: main
    image: sonde.local/busybox:1
    command: [sh, -c, "COMMAND"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: CLAIM}}]
`)
}

const (
	ordinaryUser = "runAsNonRoot: true, runAsUser: 1000"
	withGroup    = ordinaryUser + ", fsGroup: 2000"
)

// TestVolumes follows claims from their first Pod to their end.
func TestVolumes(t *testing.T) {
	p := buildProgram(t)
	p.must(t, "build")
	before := p.takeSnapshot(t)
	p.must(t, "up", "--nodes", "2")
	p.kubectlApply(t, claims)
	t.Run("no volume without a Pod", p.testUnusedClaim)
	t.Run("only fsGroup may write", p.testFSGroup)
	t.Run("data outlive their node", p.testNodeLost)
	t.Run("volume ends with its claim", p.testClaimDeleted)
	p.must(t, "down")
	if diff := cmp.Diff(before, p.takeSnapshot(t)); diff != "" {
		t.Errorf("left by down (-before +after):\n%s", diff)
	}
}

func (p program) testUnusedClaim(t *testing.T) {
	p.eventually(t, "WaitForFirstConsumer", "kubectl", "get", "events", "--field-selector", "involvedObject.name=kept", "-o", "jsonpath={.items[*].reason}")
	if got := p.kubectl(t, "get", "pvc", "-o", "jsonpath={.items[*].status.phase}"); got != "Pending Pending" {
		t.Errorf("phases of unused claims: %q", got)
	}
	if got := p.volumeDirs(t); len(got) > 0 {
		t.Errorf("directories of unused claims: %v", got)
	}
}

// volumeDirs returns the directories of all volumes.
func (p program) volumeDirs(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(p.volumes())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// testFSGroup writes as uid 1000 to a volume that is its group's, and to one that is root's.
func (p program) testFSGroup(t *testing.T) {
	p.kubectlApply(t, claimUser{"writer", "n1", "kept", withGroup, "echo kept >/data/file; stat -c %u:%g:%a /data /data/file; sleep 100000"}.manifest())
	p.kubectlApply(t, claimUser{"stranger", "n1", "closed", ordinaryUser, "echo x >/data/file || stat -c %u:%g:%a /data; false"}.manifest())
	p.eventually(t, "0:2000:2775\n1000:2000:", "kubectl", "logs", "writer")
	p.kubectl(t, "wait", "pod/stranger", "--for=jsonpath={.status.phase}=Failed", "--timeout=90s")
	if got := p.kubectl(t, "logs", "stranger"); !strings.Contains(got, "Permission denied") || !strings.Contains(got, "0:0:755") {
		t.Errorf("written without fsGroup: %q", got)
	}
}

// testNodeLost reads on n2 what a Pod on n1 wrote, after n1 has lost its power.
func (p program) testNodeLost(t *testing.T) {
	p.must(t, "node-stop", "n1")
	p.kubectlApply(t, claimUser{"reader", "n2", "kept", withGroup, "cat /data/file && echo more >>/data/file"}.manifest())
	p.kubectl(t, "wait", "pod/reader", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
	if got := p.kubectl(t, "logs", "reader"); got != "kept\n" {
		t.Errorf("read on the other node: %q", got)
	}
}

// testClaimDeleted deletes the claims: their volumes and directories go too.
func (p program) testClaimDeleted(t *testing.T) {
	p.kubectl(t, "delete", "pods", "--all", "--force")
	p.kubectl(t, "delete", "pvc", "--all", "--timeout=60s")
	p.eventually(t, "No resources found", "kubectl", "get", "pv")
	if got := p.volumeDirs(t); len(got) > 0 {
		t.Errorf("directories of deleted claims: %v", got)
	}
}
