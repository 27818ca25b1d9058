//go:build cluster

// The end-to-end test of this program. It starts and removes a cluster beside
// those that are up, and needs root:
//
//	REQUIRE_PRIVILEGED=1 go test -tags cluster -run TestCluster -v .
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// patience is the timeout of a single condition on a loaded machine.
const patience = 90 * time.Second

// testedInstance is a cluster beside those that a developer may be using.
const testedInstance = maxInstance

// program is the built cluster command under test.
type program struct {
	path string
	layout
}

func buildProgram(t *testing.T) program {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatal("REQUIRE_PRIVILEGED=1 but not root")
		}
		t.Skip("needs root")
	}
	base, err := defaultBase()
	if err != nil {
		t.Fatal(err)
	}
	p := program{path: filepath.Join(t.TempDir(), "cluster"), layout: layout{base: base, instance: testedInstance}}
	build := exec.Command("go", "build", "-o", p.path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if left, err := anythingLeft(p.layout); err != nil || left {
		t.Fatalf("cluster %d is up (%v): this test removes it, so run `cluster --instance %[1]d down` yourself first", testedInstance, err)
	}
	return p
}

func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.path, append([]string{"--instance", strconv.Itoa(p.instance)}, args...)...)
}

// run runs the command and returns what it printed.
func (p program) run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := p.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (p program) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.run(t, "", args...)
	if err != nil {
		t.Fatalf("cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p program) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return p.must(t, append([]string{"kubectl"}, args...)...)
}

// eventually repeats a command until it succeeds and prints want.
func (p program) eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out string
	var err error
	waitFor(ctx, func() bool {
		out, err = p.run(t, "", args...)
		return err == nil && strings.Contains(out, want)
	})
	if ctx.Err() != nil {
		t.Fatalf("cluster %s did not print %q within %s: %v\n%s", strings.Join(args, " "), want, patience, err, out)
	}
}

func TestCluster(t *testing.T) {
	p := buildProgram(t)
	// Kept on failure for inspection; the next `up` or `down` removes it.
	p.must(t, "build")
	before := p.takeSnapshot(t)
	t.Log(p.must(t, "up", "--nodes", "2"))
	t.Run("up again", func(t *testing.T) {
		if out := p.must(t, "up", "--nodes", "2"); !strings.Contains(out, "already up") {
			t.Errorf("got %q", out)
		}
		if out, err := p.run(t, "", "up", "--nodes", "1"); err == nil || !strings.Contains(out, "cluster down") {
			t.Errorf("up with another number of nodes: %v, %q", err, out)
		}
	})
	p.kubectlApply(t, workload)
	p.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	p.kubectl(t, "wait", "pod/client", "--for=condition=Ready", "--timeout=90s")
	t.Run("replicas on different nodes", p.testSpread)
	t.Run("service and DNS", p.testService)
	t.Run("logs and exec", p.testLogsAndExec)
	t.Run("services/proxy", p.testServiceProxy)
	t.Run("webhook in a pod", p.testWebhook)
	t.Run("hostPID job in a pod's network", p.testHostPID)
	t.Run("load", p.testLoad)
	t.Run("audit log", p.testAudit)
	t.Run("node-exec", p.testNodeExec)
	t.Run("node away", p.testNodeAway)
	t.Run("API server away", p.testAPIAway)
	t.Log(p.must(t, "down"))
	if diff := cmp.Diff(before, p.takeSnapshot(t)); diff != "" {
		t.Errorf("left by down (-before +after):\n%s", diff)
	}
	if out := p.must(t, "down"); !strings.Contains(out, "no cluster is up") {
		t.Errorf("second down: %q", out)
	}
}

// TestKilledUp kills `up` at several moments; `down` must remove the rest.
func TestKilledUp(t *testing.T) {
	p := buildProgram(t)
	p.must(t, "build")
	before := p.takeSnapshot(t)
	for name, sign := range map[string]string{
		"keys":          p.pki(),
		"control plane": p.log("kube-apiserver"),
		"nodes":         p.nodePID(nodeName(1)),
		"kubelet":       p.log(nodeName(1) + "-kubelet"),
	} {
		t.Run(name, func(t *testing.T) {
			up := p.command(t.Context(), "up", "--nodes", "2")
			if err := up.Start(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			waitFor(ctx, func() bool {
				_, err := os.Stat(sign)
				return err == nil
			})
			if err := up.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = up.Wait()
			p.must(t, "down")
			if diff := cmp.Diff(before, p.takeSnapshot(t)); diff != "" {
				t.Errorf("left by down (-before +after):\n%s", diff)
			}
		})
	}
}

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: sonde.local/busybox:1
        command: [sh, -c, "mkdir /www; hostname >/www/index.html; echo serving; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
        resources: {limits: {memory: 64Mi, cpu: 200m}}
        volumeMounts: [{name: scratch, mountPath: /scratch}]
      volumes: [{name: scratch, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: sonde.local/busybox:1
    command: [sleep, "100000"]
`

func (p program) kubectlApply(t *testing.T, manifest string) {
	t.Helper()
	if out, err := p.run(t, manifest, "kubectl", "apply", "-f", "-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
}

// webPods returns one field of each Pod of the web Deployment.
func (p program) webPods(t *testing.T, path string) []string {
	t.Helper()
	return strings.Fields(p.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*]"+path+"}"))
}

func (p program) testSpread(t *testing.T) {
	nodes := p.webPods(t, ".spec.nodeName")
	slices.Sort(nodes)
	if diff := cmp.Diff([]string{"n1", "n2"}, nodes); diff != "" {
		t.Errorf("nodes of the replicas (-want +got):\n%s", diff)
	}
}

// testService requests the Service by its name until both replicas have answered, from a client on the node of one of
// them.
func (p program) testService(t *testing.T) {
	for _, pod := range p.webPods(t, ".metadata.name") {
		p.eventually(t, pod, "kubectl", "exec", "client", "--", "timeout", "3", "wget", "-qO-", "http://web.default.svc.cluster.local/")
	}
	// A Pod that reaches itself through its Service needs hairpin mode.
	pod := p.webPods(t, ".metadata.name")[0]
	p.eventually(t, pod, "kubectl", "exec", pod, "--", "timeout", "3", "wget", "-qO-", "http://web/")
}

func (p program) testLogsAndExec(t *testing.T) {
	pod := p.webPods(t, ".metadata.name")[0]
	if out := p.kubectl(t, "logs", pod); !strings.Contains(out, "serving") {
		t.Errorf("logs: %q", out)
	}
	out, err := p.run(t, "through stdin\n", "kubectl", "exec", "-i", pod, "--", "sh", "-c", "read line; echo got $line; exit 7")
	if code := exitCode(err); code != 7 || !strings.Contains(out, "got through stdin") {
		t.Errorf("exec: status %d, %q", code, out)
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// testServiceProxy reaches a Pod from the API server through a Service.
func (p program) testServiceProxy(t *testing.T) {
	p.eventually(t, "web-", "kubectl", "get", "--raw", "/api/v1/namespaces/default/services/web:80/proxy/")
}

// testWebhook installs a webhook that a Pod behind a Service serves, and creates an object that it changes.
func (p program) testWebhook(t *testing.T) {
	server := filepath.Join(t.TempDir(), "webhook")
	build := exec.Command("go", "build", "-o", server, "./testdata/webhook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	p.loadImage(t, "quay.io/sonde/webhook:1", imageSpec{files: map[string]string{"webhook": server}, entrypoint: []string{"/webhook"}})
	ca, err := newAuthority("webhook-ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.issue(subject{name: "hook", hosts: []string{"hook.default.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.keyPEM()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.StdEncoding.EncodeToString
	p.kubectlApply(t, fmt.Sprintf(webhook, encode(pair.certPEM()), encode(key), encode(ca.certPEM())))
	p.kubectl(t, "wait", "pod/hook", "--for=condition=Ready", "--timeout=60s")
	p.eventually(t, "webhook", "kubectl", "create", "configmap", "hooked", "--dry-run=server", "-o", "jsonpath={.metadata.annotations.mutated-by}")
}

const webhook = `
apiVersion: v1
kind: Secret
metadata: {name: hook}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: v1
kind: Pod
metadata: {name: hook, labels: {app: hook}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: hook
    image: quay.io/sonde/webhook:1
    readinessProbe: {tcpSocket: {port: 9443}, periodSeconds: 1}
    volumeMounts: [{name: tls, mountPath: /tls}]
  volumes: [{name: tls, secret: {secretName: hook}}]
---
apiVersion: v1
kind: Service
metadata: {name: hook}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: 9443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.sonde.local
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  clientConfig: {caBundle: %s, service: {namespace: default, name: hook}}
`

// loadImage builds an image and loads it under a name.
func (p program) loadImage(t *testing.T, image string, spec imageSpec) {
	t.Helper()
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	img, err := spec.build()
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		t.Fatal(err)
	}
	p.must(t, "load", archive)
}

// testHostPID runs a privileged Job on the node of a Pod. It must find the Pod's process by its UID among the processes
// of that node only, and see the Pod's address in its network namespace.
func (p program) testHostPID(t *testing.T) {
	node, uid, ip := p.webPods(t, ".spec.nodeName")[0], p.webPods(t, ".metadata.uid")[0], p.webPods(t, ".status.podIP")[0]
	p.kubectlApply(t, fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: probe}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      nodeName: %s
      hostPID: true
      containers:
      - name: probe
        image: sonde.local/busybox:1
        securityContext: {privileged: true}
        command:
        - sh
        - -c
        - |
          for p in /proc/[0-9]*; do
            grep -q %s $p/cgroup && pid=${p#/proc/}
          done
          echo kubelets: $(cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^kubelet$')
          nsenter -t $pid -n ip addr show eth0
`, node, uid))
	p.kubectl(t, "wait", "job/probe", "--for=condition=Complete", "--timeout=60s")
	out := p.kubectl(t, "logs", "job/probe")
	for _, want := range []string{"kubelets: 1\n", ip + "/24"} {
		if !strings.Contains(out, want) {
			t.Errorf("log of the probe lacks %q:\n%s", want, out)
		}
	}
}

// testLoad loads two images under one name: a new Pod must get the second.
func (p program) testLoad(t *testing.T) {
	const image = "quay.io/sonde/example:dev"
	for _, version := range []string{"one", "two"} {
		spec, err := busyboxSpec(t.Context(), "/bin/busybox")
		if err != nil {
			t.Fatal(err)
		}
		spec.texts["version"] = version
		p.loadImage(t, image, spec)
		pod := "loaded-" + version
		p.kubectl(t, "run", pod, "--image="+image, "--restart=Never", "--image-pull-policy=IfNotPresent", "--", "cat", "/version")
		p.kubectl(t, "wait", "pod/"+pod, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
		if out := p.kubectl(t, "logs", pod); out != version {
			t.Errorf("the Pod got version %q, want %q", out, version)
		}
	}
	p.kubectl(t, "run", "absent", "--image=quay.io/sonde/absent:1", "--restart=Never")
	p.eventually(t, "ErrImagePull", "kubectl", "get", "events", "--field-selector", "involvedObject.name=absent", "-o", "jsonpath={.items[*].message}")
}

func (p program) testAudit(t *testing.T) {
	log := strings.TrimSpace(p.must(t, "audit-log"))
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"verb":"create","user":{"username":"kubernetes-admin"`, `"username":"system:serviceaccount:kube-system:coredns"`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("%s lacks %s", log, want)
		}
	}
}

func (p program) testNodeExec(t *testing.T) {
	out, err := p.run(t, "input", "node-exec", "n2", "--", "sh", "-c", "hostname; cat; exit 3")
	if code := exitCode(err); code != 3 || out != "n2\ninput" {
		t.Errorf("status %d, %q", code, out)
	}
	if out, err := p.run(t, "", "node-exec", "n9", "--", "true"); err == nil || !strings.Contains(out, "no node") {
		t.Errorf("unknown node: %v, %q", err, out)
	}
}

// snapshot is everything that a cluster could leave on the machine.
type snapshot struct {
	Mounts, Cgroups, Netns, Disks, Processes, Files []string
}

func (p program) takeSnapshot(t *testing.T) snapshot {
	t.Helper()
	var s snapshot
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 {
			s.Mounts = append(s.Mounts, f[4])
		}
	}
	if s.Cgroups, err = clusterCgroups(p.layout); err != nil {
		t.Fatal(err)
	}
	if s.Netns, err = leftNetns(p.layout); err != nil {
		t.Fatal(err)
	}
	if s.Disks, err = loopDevices(p.netnsPrefix()); err != nil {
		t.Fatal(err)
	}
	s.Processes = p.clusterPrograms(t)
	for _, dir := range []string{"/run", "/etc", "/var/lib", "/var/log"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			s.Files = append(s.Files, filepath.Join(dir, e.Name()))
		}
	}
	return s
}

// clusterPrograms returns the command lines of all processes on the machine that run a program of the cluster's cache,
// or this test's build of it. It leaves out other clusters' processes.
func (p program) clusterPrograms(t *testing.T) []string {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, exe := range exes {
		target, err := os.Readlink(exe)
		if err == nil && (strings.HasPrefix(target, p.base) || filepath.Base(target) == "cluster") && !p.elsewhere(filepath.Dir(exe)) {
			found = append(found, exe+" "+target)
		}
	}
	return found
}

// elsewhere reports whether the process at /proc/<pid> belongs to another cluster. An ended process belongs to none.
func (p program) elsewhere(proc string) bool {
	cgroups, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return true
	}
	for i := range maxInstance + 1 {
		if i != p.instance && strings.Contains(string(cgroups), ":/"+layout{instance: i}.name()+"/") {
			return true
		}
	}
	return false
}
