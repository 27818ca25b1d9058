package platform

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestBuildGateConfiguration(t *testing.T) {
	o := ConfigurationOptions{Namespace: "sonde-system", SecretPath: "/secret", CABundle: []byte("bundle"), OwnerUID: "0a0b"}
	got, err := yaml.Marshal(BuildGateConfiguration(o, []string{"shop", "kube-system", "bank", "openshift-dns", "shop", "sonde-system"}))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/gate-configuration.yaml"
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("configuration (-want +got), rewrite with -update:\n%s", diff)
	}
}

// TestNoGateConfigurationWithoutNamespaces guards against an empty selector, which would match every namespace.
func TestNoGateConfigurationWithoutNamespaces(t *testing.T) {
	for name, namespaces := range map[string][]string{"none": nil, "protected alone": {"kube-system", "openshift", "sonde-system"}} {
		t.Run(name, func(t *testing.T) {
			if got := BuildGateConfiguration(ConfigurationOptions{Namespace: "sonde-system"}, namespaces); got != nil {
				t.Errorf("got %v", got)
			}
		})
	}
}
