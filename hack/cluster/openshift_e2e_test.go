//go:build cluster

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// developer impersonates a ServiceAccount with the rights of a user with the role edit in its namespace.
var developer = []string{"--as=system:serviceaccount:project:developer", "--as-group=system:authenticated", "--as-group=system:serviceaccounts"}

func (p program) asDeveloper(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return p.run(t, stdin, append(append([]string{"kubectl", "-n", "project"}, developer...), args...)...)
}

const project = `
apiVersion: v1
kind: Namespace
metadata: {name: project}
---
apiVersion: v1
kind: Namespace
metadata: {name: early, labels: {openshift.io/run-level: "1"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: developer, namespace: project}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: project}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: developer, namespace: project}]
`

// privilegedPod may do everything on its node.
const privilegedPod = `
apiVersion: v1
kind: Pod
metadata: {name: privileged, labels: {app: privileged}}
spec:
  serviceAccountName: developer
  hostPID: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: sonde.local/busybox:1
    command: [sh, -c, "id -u; exec sleep 100000"]
    securityContext: {privileged: true, runAsUser: 0}
`

// TestOpenShift starts a cluster of the flavour openshift and acts as a developer with a project.
func TestOpenShift(t *testing.T) {
	p := buildProgram(t)
	t.Log(p.must(t, "up", "--openshift", "--nodes", "1"))
	t.Run("another flavour", func(t *testing.T) {
		if out := p.must(t, "up", "--openshift", "--nodes", "1"); !strings.Contains(out, "already up") {
			t.Errorf("up again: %q", out)
		}
		if out, err := p.run(t, "", "up", "--nodes", "1"); err == nil || !strings.Contains(out, "add --openshift") {
			t.Errorf("up of a plain cluster: %v, %q", err, out)
		}
	})
	p.kubectlApply(t, project)
	p.eventually(t, "default", "kubectl", "-n", "project", "get", "serviceaccount", "default")
	t.Run("ordinary pod", p.testRestricted)
	t.Run("claim of an ordinary pod", p.testRestrictedClaim)
	t.Run("privileged pod refused", p.testPrivilegedRefused)
	t.Run("privileged job refused", p.testPrivilegedJobRefused)
	t.Run("privileged pod with the right", p.testPrivilegedGranted)
	t.Run("exec needs the right too", p.testExecRestriction)
	t.Run("namespaces that are left alone", p.testExempt)
	t.Run("owner references", p.testOwnerReferences)
	t.Log(p.must(t, "down"))
	if left, err := anythingLeft(p.layout); err != nil || left {
		t.Errorf("down left something: %t, %v", left, err)
	}
}

// constraintOf returns the annotation that the admission writes, once the Pod exists.
func (p program) constraintOf(t *testing.T, namespace, pod string) string {
	t.Helper()
	return p.kubectl(t, "-n", namespace, "get", "pod", pod, "-o", `jsonpath={.metadata.annotations.openshift\.io/scc}`)
}

// testRestricted runs a Pod without any requests: it gets the first uid of its namespace's range, which its process
// really has, and no capability.
func (p program) testRestricted(t *testing.T) {
	if out, err := p.asDeveloper(t, "", "run", "ordinary", "--image=sonde.local/busybox:1", "--restart=Never", "--",
		"sh", "-c", "id -u; grep CapEff /proc/self/status"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := p.constraintOf(t, "project", "ordinary"); got != "restricted-v2" {
		t.Errorf("SCC %q, want restricted-v2", got)
	}
	p.kubectl(t, "-n", "project", "wait", "pod/ordinary", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
	if diff := cmp.Diff("1000680000\nCapEff:\t0000000000000000\n", p.kubectl(t, "-n", "project", "logs", "ordinary")); diff != "" {
		t.Errorf("uid and capabilities of the process (-want +got):\n%s", diff)
	}
}

// testRestrictedClaim writes to a claim without asking for a group: the SCC sets fsGroup.
func (p program) testRestrictedClaim(t *testing.T) {
	out, err := p.asDeveloper(t, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: sonde.local/busybox:1
    command: [sh, -c, "echo x >/data/file && stat -c %u:%g /data/file"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`, "create", "-f", "-")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.kubectl(t, "-n", "project", "wait", "pod/claims", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
	if diff := cmp.Diff("1000680000:1000680000\n", p.kubectl(t, "-n", "project", "logs", "claims")); diff != "" {
		t.Errorf("owner of the written file (-want +got):\n%s", diff)
	}
}

// testPrivilegedRefused compares the whole refusal, which a user of a real OpenShift reads.
func (p program) testPrivilegedRefused(t *testing.T) {
	out, err := p.asDeveloper(t, privilegedPod, "create", "-f", "-")
	if err == nil {
		t.Fatal("the Pod was admitted")
	}
	golden := filepath.Join("testdata", "openshift-refusal.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

// testPrivilegedJobRefused creates a Job, which is admitted; its Pods are not.
func (p program) testPrivilegedJobRefused(t *testing.T) {
	out, err := p.asDeveloper(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: privileged}
spec:
  template:
    spec:
      serviceAccountName: developer
      restartPolicy: Never
      containers: [{name: main, image: "sonde.local/busybox:1", command: [id], securityContext: {privileged: true}}]
`, "create", "-f", "-")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.eventually(t, "unable to validate against any security context constraint", "kubectl", "-n", "project", "get", "events",
		"--field-selector", "reason=FailedCreate,involvedObject.name=privileged", "-o", "jsonpath={.items[*].message}")
}

func (p program) testPrivilegedGranted(t *testing.T) {
	p.kubectl(t, "-n", "project", "create", "rolebinding", "privileged",
		"--clusterrole=system:openshift:scc:privileged", "--serviceaccount=project:developer")
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(manifest, []byte(privilegedPod), 0o600); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, "created", append(append([]string{"kubectl", "-n", "project"}, developer...), "create", "-f", manifest)...)
	if got := p.constraintOf(t, "project", "privileged"); got != "privileged" {
		t.Errorf("SCC %q, want privileged", got)
	}
	p.kubectl(t, "-n", "project", "wait", "pod/privileged", "--for=condition=Ready", "--timeout=60s")
	p.eventually(t, "0", "kubectl", "-n", "project", "logs", "privileged")
}

// testExecRestriction withdraws the right: the Pod stays, but its owner may no longer exec into it.
func (p program) testExecRestriction(t *testing.T) {
	exec := append(append([]string{"kubectl", "-n", "project"}, developer...), "exec", "privileged", "--", "id", "-u")
	if out, err := p.run(t, "", exec...); err != nil || strings.TrimSpace(out) != "0" {
		t.Fatalf("with the right: %v, %q", err, out)
	}
	p.kubectl(t, "-n", "project", "delete", "rolebinding", "privileged")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out string
	waitFor(ctx, func() bool {
		var err error
		out, err = p.run(t, "", exec...)
		return err != nil
	})
	if want := "exec operation is not allowed because the pod's security context exceeds your permissions"; !strings.Contains(out, want) {
		t.Errorf("without the right: %q", out)
	}
}

// testExempt creates Pods in the namespaces from which OpenShift itself starts.
func (p program) testExempt(t *testing.T) {
	p.eventually(t, "default", "kubectl", "-n", "early", "get", "serviceaccount", "default")
	for _, namespace := range []string{"default", "early"} {
		p.kubectl(t, "-n", namespace, "run", "exempt", "--image=sonde.local/busybox:1", "--restart=Never", "--", "true")
		if got := p.constraintOf(t, namespace, "exempt"); got != "" {
			t.Errorf("namespace %s: SCC %q, want none", namespace, got)
		}
	}
}

// testOwnerReferences sets an owner that blocks deletion and whose finalizers the developer may not update.
func (p program) testOwnerReferences(t *testing.T) {
	uid := p.kubectl(t, "-n", "project", "get", "pod", "ordinary", "-o", "jsonpath={.metadata.uid}")
	out, err := p.asDeveloper(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
		{"apiVersion": "v1", "kind": "Pod", "name": "ordinary", "uid": "`+uid+`", "blockOwnerDeletion": true}]}}`, "create", "-f", "-")
	if err == nil || !strings.Contains(out, "cannot set blockOwnerDeletion") {
		t.Errorf("%v, %q", err, out)
	}
}
