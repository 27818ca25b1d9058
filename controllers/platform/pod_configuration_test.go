package platform

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestBuildPodConfiguration(t *testing.T) {
	gated := []string{"shop", "kube-system", "bank", "openshift-dns", "shop", "sonde-system"}
	for golden, webhooks := range map[string]PodWebhooks{
		"testdata/pod-configuration-gates.yaml":    {Gated: gated},
		"testdata/pod-configuration-sidecars.yaml": {Sidecars: true},
		"testdata/pod-configuration.yaml":          {Gated: gated, Sidecars: true},
	} {
		t.Run(golden, func(t *testing.T) {
			o := ConfigurationOptions{Namespace: "sonde-system", SecretPath: "/secret", CABundle: []byte("bundle"), OwnerUID: "0a0b"}
			got, err := yaml.Marshal(BuildPodConfiguration(o, webhooks))
			if err != nil {
				t.Fatal(err)
			}
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
		})
	}
}

// TestNoPodConfigurationWithoutNamespaces guards against an empty selector, which would match every namespace.
func TestNoPodConfigurationWithoutNamespaces(t *testing.T) {
	for name, namespaces := range map[string][]string{"none": nil, "protected alone": {"kube-system", "openshift", "sonde-system"}} {
		t.Run(name, func(t *testing.T) {
			if got := BuildPodConfiguration(ConfigurationOptions{Namespace: "sonde-system"}, PodWebhooks{Gated: namespaces}); got != nil {
				t.Errorf("got %v", got)
			}
		})
	}
}
