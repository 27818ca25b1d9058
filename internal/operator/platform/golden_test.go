package platform_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

func TestObjects(t *testing.T) {
	scc := func(o agentjob.Options) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{platform.SecurityContextConstraints(o)}
	}
	for name, objects := range map[string][]*unstructured.Unstructured{
		"claim-policy":           platform.ClaimPolicy("sonde-system"),
		"collector-policy":       platform.CollectorPolicy(),
		"console":                platform.Console("0.2.0"),
		"monitoring":             platform.Monitoring("sonde-system"),
		"scc-privileged":         scc(agentjob.Options{Namespace: "sonde-system"}),
		"scc-capabilities":       scc(agentjob.Options{Namespace: "sonde-system", Privilege: privilege.Capabilities}),
		"scc-in-other-namespace": scc(agentjob.Options{Namespace: "elsewhere"}),
	} {
		t.Run(name, func(t *testing.T) {
			var parts []string
			for _, o := range objects {
				b, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, string(b))
			}
			got, path := strings.Join(parts, "---\n"), filepath.Join("testdata", name+".yaml")
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
		})
	}
}

// typed converts an object back. It fails for a field that the type does not have.
func typed[T any](t *testing.T, u *unstructured.Unstructured) T {
	t.Helper()
	var o T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &o, true); err != nil {
		t.Fatal(err)
	}
	return o
}
