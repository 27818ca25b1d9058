package console_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/operator/console"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

func TestBuild(t *testing.T) {
	const path = "testdata/console.yaml"
	var parts []string
	for _, o := range console.Build("0.2.0") {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(b))
	}
	got := strings.Join(parts, "---\n")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), rewrite with -update:\n%s", path, diff)
	}
}

// What is not released cannot be downloaded.
func TestNoDownloadOfWhatIsNotReleased(t *testing.T) {
	if objects := console.Build("dev"); len(objects) != 1 || objects[0].GetKind() != "ConsoleYAMLSample" {
		t.Errorf("objects %v, want the example alone", objects)
	}
}

// The example is the one that the bundle has, and the platforms are those of a release.
func TestOneSource(t *testing.T) {
	spec := console.Build("0.2.0")[0].Object["spec"].(map[string]any)
	want, err := os.ReadFile("../../../config/samples/monitoring_v1alpha1_packetcapture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), spec["yaml"]); diff != "" {
		t.Errorf("example (-config/samples +console): copy it to sample.yaml\n%s", diff)
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
	for _, l := range console.Build("0.2.0")[1].Object["spec"].(map[string]any)["links"].([]any) {
		name := regexp.MustCompile(`/v0\.2\.0/kubectl-sonde_([a-z0-9]+)_([a-z0-9]+)\.tar\.gz$`).FindStringSubmatch(l.(map[string]any)["href"].(string))
		if name == nil {
			t.Fatalf("link %v", l)
		}
		built = append(built, name[1]+"/"+name[2])
	}
	if diff := cmp.Diff(strings.Fields(string(platforms[1])), built); diff != "" {
		t.Errorf("platforms (-Makefile +console):\n%s", diff)
	}
}
