package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestAssets compares every rendered configuration with its golden file.
func TestAssets(t *testing.T) {
	node := nodeValues(nodeConfig{
		Name: "n1", IP: "10.99.0.21", PodCIDR: "10.244.1.0/24", Base: "/cache", Runc: "/usr/sbin/runc", CNIPlugins: "/usr/lib/cni",
	})
	for name, values := range map[string]map[string]any{
		"containerd.toml":   node,
		"hosts.toml":        node,
		"cni.conflist":      node,
		"kubelet.yaml":      node,
		"kube-proxy.yaml":   node,
		"kubeconfig.yaml":   {"Server": "https://127.0.0.1:16443", "CA": []byte("ca"), "Cert": []byte("cert"), "Key": []byte("key")},
		"coredns.yaml":      {"Image": coreDNSImage, "DNS": dnsIP},
		"base.yaml":         nil,
		"audit-policy.yaml": nil,
		"kwok-nodes.yaml":   {"Names": []string{simulatedNode(1), simulatedNode(2)}},

		"openshift-scc.yaml":    nil,
		"openshift-rbac.yaml":   openshiftValues(),
		"openshift-ranges.yaml": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(&got, name, values); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test -update writes it)", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

func TestEveryAssetHasAGoldenFile(t *testing.T) {
	entries, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join("testdata", e.Name())); err != nil {
			t.Errorf("add %s to TestAssets: %v", e.Name(), err)
		}
	}
}

func TestRenderRefusesMissingValues(t *testing.T) {
	err := render(&bytes.Buffer{}, "kubelet.yaml", map[string]any{"Name": "n1"})
	if err == nil || !strings.Contains(err.Error(), "render kubelet.yaml") {
		t.Errorf("got %v", err)
	}
}
