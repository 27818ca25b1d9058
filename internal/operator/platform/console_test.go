package platform_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	consolev1 "github.com/openshift/api/console/v1"

	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// A version without a release has nothing to download.
func TestConsoleWithoutRelease(t *testing.T) {
	if objects := platform.Console("dev"); len(objects) != 1 || objects[0].GetKind() != "ConsoleYAMLSample" {
		t.Errorf("objects %v, want the example alone", objects)
	}
}

// The example equals the bundle's, and the platforms equal a release's.
func TestConsoleMatchesRelease(t *testing.T) {
	objects := platform.Console("0.2.0")
	want, err := os.ReadFile("../../../config/samples/monitoring_v1alpha1_packetcapture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := typed[consolev1.ConsoleYAMLSample](t, objects[0])
	if diff := cmp.Diff(string(want), string(sample.Spec.YAML)); diff != "" {
		t.Errorf("example (-config/samples +console): copy it to console_sample.yaml\n%s", diff)
	}
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	platforms := regexp.MustCompile(`(?m)^PLUGIN_PLATFORMS \?= (.*)$`).FindSubmatch(makefile)
	if platforms == nil {
		t.Fatal("the Makefile has no PLUGIN_PLATFORMS")
	}
	var built []string
	for _, l := range typed[consolev1.ConsoleCLIDownload](t, objects[1]).Spec.Links {
		name := regexp.MustCompile(`/v0\.2\.0/kubectl-sonde_([a-z0-9]+)_([a-z0-9]+)\.tar\.gz$`).FindStringSubmatch(l.Href)
		if name == nil {
			t.Fatalf("link %v", l)
		}
		built = append(built, name[1]+"/"+name[2])
	}
	if diff := cmp.Diff(strings.Fields(string(platforms[1])), built); diff != "" {
		t.Errorf("platforms (-Makefile +console):\n%s", diff)
	}
}
