package platform

import (
	_ "embed" // the example
	"fmt"
	"strings"

	consolev1 "github.com/openshift/api/console/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// objectName of the objects for the console and for Prometheus.
const objectName = "sonde"

// releases is where the plugin's archives are.
const releases = "https://github.com/sonde-operator/sonde/releases/download/"

//go:embed console_sample.yaml
var sample string

// pluginPlatforms that a release has archives for (PLUGIN_PLATFORMS in the Makefile).
var pluginPlatforms = []struct{ os, arch, text string }{
	{"linux", "amd64", "Linux for x86_64"},
	{"linux", "arm64", "Linux for ARM 64"},
	{"darwin", "amd64", "Mac for x86_64"},
	{"darwin", "arm64", "Mac for ARM 64"},
	{"windows", "amd64", "Windows for x86_64"},
	{"windows", "arm64", "Windows for ARM 64"},
}

// +kubebuilder:rbac:groups=console.openshift.io,resources=consoleclidownloads;consoleyamlsamples,resourceNames=sonde,verbs=create;get;list;watch;patch;delete

// Console returns the objects that OpenShift's console shows: an example beside the editor for new captures, and links to
// the plugin of this version. The version "dev" has no release, and so no links.
func Console(version string) []*unstructured.Unstructured {
	example := content(consolev1.GroupVersion.WithKind("ConsoleYAMLSample"), &consolev1.ConsoleYAMLSample{
		ObjectMeta: meta("", objectName),
		Spec: consolev1.ConsoleYAMLSampleSpec{
			TargetResource: metav1.TypeMeta{APIVersion: sondev1.GroupVersion.String(), Kind: "PacketCapture"},
			Title:          "Capture the packets of a Deployment",
			Description:    "Captures the packets of every Pod of a Deployment for 30 seconds, from a namespace that is a hub.",
			YAML:           consolev1.ConsoleYAMLSampleYAML(sample),
		},
	})
	if version == "dev" {
		return []*unstructured.Unstructured{example}
	}
	links := make([]consolev1.CLIDownloadLink, 0, len(pluginPlatforms))
	for _, p := range pluginPlatforms {
		links = append(links, consolev1.CLIDownloadLink{
			Text: "Download kubectl-sonde for " + p.text,
			Href: fmt.Sprintf("%sv%s/kubectl-sonde_%s_%s.tar.gz", releases, strings.TrimPrefix(version, "v"), p.os, p.arch),
		})
	}
	return []*unstructured.Unstructured{example, content(consolev1.GroupVersion.WithKind("ConsoleCLIDownload"), &consolev1.ConsoleCLIDownload{
		ObjectMeta: meta("", objectName),
		Spec: consolev1.ConsoleCLIDownloadSpec{
			DisplayName: "sonde - plugin for oc and kubectl",
			Description: "Starts captures, follows them and fetches their packets: `oc sonde capture deployment/web`.",
			Links:       links,
		},
	})}
}
