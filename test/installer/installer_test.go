package installer_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sonde-operator/sonde/test/installer"
)

// rules returns the rules of the roles in the installer's manifest, by kind.
func rules(t *testing.T, bundle string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	manifests, err := installer.Manifests(bundle)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]rbacv1.PolicyRule{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var role rbacv1.Role // a ClusterRole has the same fields
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(role.Rules) > 0 {
			found[role.Kind] = role.Rules
		}
	}
}

// The installer has no right that creates rights, and none to everything. It changes CRDs only by name.
func TestNothingLikeClusterAdmin(t *testing.T) {
	for name, bundle := range map[string]string{"this tree": "../../bundle", "0.1.0": "../olm/fixtures/0.1.0"} {
		t.Run(name, func(t *testing.T) {
			all := rules(t, bundle)
			if len(all["ClusterRole"]) == 0 || len(all["Role"]) == 0 {
				t.Fatalf("no rules: %v", all)
			}
			for kind, list := range all {
				for _, r := range list {
					for _, no := range []string{"*", "escalate", "bind", "impersonate"} {
						if slices.Contains(r.Verbs, no) || slices.Contains(r.Resources, no) || slices.Contains(r.APIGroups, no) {
							t.Errorf("%s: %s in %+v", kind, no, r)
						}
					}
					if slices.Contains(r.Resources, "customresourcedefinitions") && slices.Contains(r.Verbs, "delete") && len(r.ResourceNames) == 0 {
						t.Errorf("%s: want rules for CRDs restricted by name, got %+v", kind, r)
					}
				}
			}
		})
	}
}

func TestNoBundle(t *testing.T) {
	if _, err := installer.Manifests(t.TempDir()); err == nil || !strings.Contains(err.Error(), "name the directory of a bundle") {
		t.Errorf("got error %v, want one that says which directory to name", err)
	}
}
