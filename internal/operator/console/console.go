// Package console builds what Sonde shows in OpenShift's console: an example beside the editor for new
// captures, and where to get the plugin.
package console

import (
	_ "embed" // the example
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// name of both objects.
const name = "sonde"

// releases is where the plugin's archives are.
const releases = "https://github.com/sonde-operator/sonde/releases/download/"

//go:embed sample.yaml
var sample string

// platforms that a release has archives for (PLUGIN_PLATFORMS in the Makefile).
var platforms = []struct{ os, arch, text string }{
	{"linux", "amd64", "Linux for x86_64"},
	{"linux", "arm64", "Linux for ARM 64"},
	{"darwin", "amd64", "Mac for x86_64"},
	{"darwin", "arm64", "Mac for ARM 64"},
	{"windows", "amd64", "Windows for x86_64"},
	{"windows", "arm64", "Windows for ARM 64"},
}

// +kubebuilder:rbac:groups=console.openshift.io,resources=consoleclidownloads;consoleyamlsamples,resourceNames=sonde,verbs=create;get;list;watch;patch;delete

// Build returns the objects for a version without a leading v; for "dev", of which there is no release, the
// example alone.
func Build(version string) []*unstructured.Unstructured {
	objects := []*unstructured.Unstructured{object("ConsoleYAMLSample", map[string]any{
		"targetResource": map[string]any{"apiVersion": sondev1.GroupVersion.String(), "kind": "PacketCapture"},
		"title":          "Capture the packets of a Deployment",
		"description":    "Captures the packets of every Pod of a Deployment for 30 seconds, from a namespace that is a hub.",
		"yaml":           sample,
		"snippet":        false,
	})}
	if version == "dev" {
		return objects
	}
	links := make([]any, 0, len(platforms))
	for _, p := range platforms {
		links = append(links, map[string]any{
			"text": "Download kubectl-sonde for " + p.text,
			"href": fmt.Sprintf("%sv%s/kubectl-sonde_%s_%s.tar.gz", releases, strings.TrimPrefix(version, "v"), p.os, p.arch),
		})
	}
	return append(objects, object("ConsoleCLIDownload", map[string]any{
		"displayName": "sonde - plugin for oc and kubectl",
		"description": "Starts captures, follows them and fetches their packets: `oc sonde capture deployment/web`.",
		"links":       links,
	}))
}

func object(kind string, spec map[string]any) *unstructured.Unstructured {
	return platform.New(schema.GroupVersionKind{Group: "console.openshift.io", Version: "v1", Kind: kind}, "", name, map[string]any{"spec": spec})
}
