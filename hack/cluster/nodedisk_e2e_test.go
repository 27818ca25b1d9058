//go:build cluster

package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const onDisk = `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers:
  - name: writer
    image: sonde.local/busybox:1
    command: [sh, -c, "while echo line >>/data/file; do :; done; sleep 100000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`

// TestNodeDisk fills and freezes the disk of a node, and removes the cluster while a Pod hangs on it.
func TestNodeDisk(t *testing.T) {
	p := buildProgram(t)
	p.must(t, "build")
	before := p.takeSnapshot(t)
	p.must(t, "up", "--nodes", "1", "--node-disk", "512Mi")
	if out, err := p.run(t, "", "up", "--nodes", "1"); err == nil || !strings.Contains(out, "--node-disk 512Mi") {
		t.Errorf("up without disks: %v, %q", err, out)
	}
	p.kubectlApply(t, onDisk)
	p.kubectl(t, "wait", "pod/writer", "--for=condition=Ready", "--timeout=90s")
	p.must(t, "node-exec", "n1", "--", "sh", "-c", "dd if=/dev/zero of="+kubeletRoot+"/fill bs=64K 2>/dev/null; true")
	if out := p.must(t, "node-exec", "n1", "--", "sh", "-c", "df -k --output=avail "+kubeletRoot+" | tail -1"); strings.TrimSpace(out) != "0" {
		t.Errorf("free on a full disk: %s KiB", out)
	}
	p.must(t, "node-exec", "n1", "--", "rm", kubeletRoot+"/fill")
	p.must(t, "node-exec", "n1", "--", "fsfreeze", "--freeze", kubeletRoot)
	p.must(t, "down")
	if diff := cmp.Diff(before, p.takeSnapshot(t)); diff != "" {
		t.Errorf("left by down (-before +after):\n%s", diff)
	}
}

// TestKilledUpWithDisks kills `up` when its nodes have just got their disks.
func TestKilledUpWithDisks(t *testing.T) {
	p := buildProgram(t)
	p.must(t, "build")
	before := p.takeSnapshot(t)
	up := p.command(t.Context(), "up", "--nodes", "2", "--node-disk", "512Mi")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waitFor(ctx, func() bool {
		_, err := os.Stat(p.nodePID(nodeName(2)))
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
}
