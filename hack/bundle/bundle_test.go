package main

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimanifests "github.com/operator-framework/api/pkg/manifests"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/api/pkg/validation"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func install(t *testing.T) []byte {
	t.Helper()
	stream, err := os.ReadFile("testdata/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func demo() release {
	return release{version: "1.2.3", date: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC), image: "registry/demo:v1.2.3", releaserImage: "registry/demo-releaser:v1.2.3", channel: "alpha", icon: []byte("<svg/>")}
}

func built(t *testing.T, r release) (map[string][]byte, operatorsv1alpha1.ClusterServiceVersion) {
	t.Helper()
	files, err := build(install(t), r)
	if err != nil {
		t.Fatal(err)
	}
	var csv operatorsv1alpha1.ClusterServiceVersion
	if err := yaml.UnmarshalStrict(files["bundle/manifests/demo.clusterserviceversion.yaml"], &csv); err != nil {
		t.Fatal(err)
	}
	return files, csv
}

func TestFilesOfABundle(t *testing.T) {
	t.Parallel()
	files, _ := built(t, demo())
	want := []string{
		"bundle.Dockerfile",
		"bundle/manifests/demo.clusterserviceversion.yaml",
		"bundle/manifests/manager_rbac.authorization.k8s.io_v1_clusterrole.yaml",
		"bundle/manifests/manager_rbac.authorization.k8s.io_v1_role.yaml",
		"bundle/manifests/manager_rbac.authorization.k8s.io_v1_rolebinding.yaml",
		"bundle/manifests/monitoring.openshift.tpg_demos.yaml",
		"bundle/manifests/probe_v1_serviceaccount.yaml",
		"bundle/manifests/results_rbac.authorization.k8s.io_v1_role.yaml",
		"bundle/manifests/results_rbac.authorization.k8s.io_v1_rolebinding.yaml",
		"bundle/manifests/results_v1_service.yaml",
		"bundle/manifests/view_rbac.authorization.k8s.io_v1_clusterrole.yaml",
		"bundle/metadata/annotations.yaml",
		"bundle/tests/scorecard/config.yaml",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, content := range files {
		var object metav1.PartialObjectMetadata
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		if err := yaml.Unmarshal(content, &object); err != nil {
			t.Fatal(err)
		}
		// The CSV's is a placeholder, as every tool writes it.
		if object.Kind != operatorsv1alpha1.ClusterServiceVersionKind && object.Namespace != "" {
			t.Errorf("%s fixes a namespace, which OLM chooses:\n%s", name, content)
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	t.Parallel()
	first, _ := built(t, demo())
	for range 5 {
		again, _ := built(t, demo())
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("another bundle of the same input (-first +again):\n%s", diff)
		}
	}
}

func TestClusterServiceVersion(t *testing.T) {
	t.Parallel()
	_, csv := built(t, demo())
	wantAnnotations := map[string]string{
		"alm-examples":   "[\n  {\n    \"apiVersion\": \"monitoring.openshift.tpg/v1alpha1\",\n    \"kind\": \"Demo\",\n    \"metadata\": {\n      \"name\": \"example\"\n    }\n  }\n]",
		"capabilities":   "Basic Install",
		"containerImage": "registry/demo:v1.2.3",
		"createdAt":      "2026-03-04T00:00:00Z",
		"features.operators.openshift.io/disconnected":      "false",
		"operatorframework.io/suggested-namespace":          "demo-system",
		"operatorframework.io/suggested-namespace-template": `{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"},"name":"demo-system"}}`,
	}
	if diff := cmp.Diff(wantAnnotations, csv.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if csv.Name != "demo.v1.2.3" || csv.Spec.Version.String() != "1.2.3" {
		t.Errorf("name %s, version %s", csv.Name, csv.Spec.Version)
	}
	wantFields := []operatorsv1alpha1.SpecDescriptor{
		{Path: "second", DisplayName: "The second", Description: "second of all."},
		{Path: "firstField", DisplayName: "First field", Description: "firstField is first."},
	}
	if diff := cmp.Diff(wantFields, csv.Spec.CustomResourceDefinitions.Owned[0].SpecDescriptors); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
	container := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers[0]
	if container.Image != "registry/demo:v1.2.3" || container.Env[0].Value != "registry/demo:v1.2.3" || container.Env[1].Value != "registry/demo-releaser:v1.2.3" {
		t.Errorf("image %s, of the agents and the releaser %+v", container.Image, container.Env)
	}
}

func TestPermissionsOfTheManager(t *testing.T) {
	t.Parallel()
	files, csv := built(t, demo())
	rule := func(resource string) []operatorsv1alpha1.StrategyDeploymentPermissions {
		return []operatorsv1alpha1.StrategyDeploymentPermissions{{ServiceAccountName: "manager", Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}},
		}}}
	}
	if diff := cmp.Diff(rule("pods"), csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions); diff != "" {
		t.Errorf("in the cluster (-want +got):\n%s", diff)
	}
	if got := csv.Spec.InstallStrategy.StrategySpec.Permissions; len(got) != 0 {
		t.Errorf("OLM would give these in every namespace: %v", got)
	}
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	for kind, object := range map[string]any{"role": &role, "rolebinding": &binding} {
		if err := yaml.UnmarshalStrict(files["bundle/manifests/manager_rbac.authorization.k8s.io_v1_"+kind+".yaml"], object); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(rule("secrets")[0].Rules, role.Rules); diff != "" {
		t.Errorf("in its namespace (-want +got):\n%s", diff)
	}
	wantSubjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "manager", Namespace: "demo-system"}}
	if diff := cmp.Diff(wantSubjects, binding.Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

func TestMirrorsNeedDigest(t *testing.T) {
	t.Parallel()
	r := demo()
	r.image = "registry/demo@sha256:" + strings.Repeat("a", 64)
	r.releaserImage = "registry/demo-releaser@sha256:" + strings.Repeat("b", 64)
	_, csv := built(t, r)
	if got := csv.Annotations["features.operators.openshift.io/disconnected"]; got != "true" {
		t.Errorf("disconnected is %q for an image with a digest", got)
	}
}

func TestClusterRolesOwnedByCSV(t *testing.T) {
	t.Parallel()
	files, _ := built(t, demo())
	wantLabels := map[string]string{"olm.owner": "demo.v1.2.3", "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": "demo-system"}
	for name, wantRules := range map[string]int{"manager": 0, "view": 1} {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(files["bundle/manifests/"+name+"_rbac.authorization.k8s.io_v1_clusterrole.yaml"], &role); err != nil {
			t.Fatal(err)
		}
		delete(role.Labels, "rbac.authorization.k8s.io/aggregate-to-view")
		if diff := cmp.Diff(wantLabels, role.Labels); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", name, diff)
		}
		if len(role.Rules) != wantRules {
			t.Errorf("%s has %d rules, want %d", name, len(role.Rules), wantRules)
		}
	}
}

func TestInputRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		old, new, want string
	}{
		"no Deployment":              {"kind: Deployment", "kind: Service", "is missing"},
		"no namespace":               {"metadata: {name: manager, namespace: demo-system}\nspec:", "metadata: {name: manager, namespace: other}\nspec:", "is missing"},
		"an unknown field":           {"path: second", "path: third", "no field third"},
		"an unknown kind":            {"name: demos.monitoring.openshift.tpg\n      version", "name: gone.monitoring.openshift.tpg\n      version", "which no CRD has"},
		"a misspelt field":           {"displayName: Demo", "dispalyName: Demo", "dispalyName"},
		"a kind that OLM refuses":    {"kind: Service\n", "kind: MutatingWebhookConfiguration\n", "cannot be in a bundle"},
		"agents without an image":    {"RELATED_IMAGE_SONDE", "OTHER", "RELATED_IMAGE_SONDE"},
		"a cluster right for others": {"name: manager}\nsubjects: [{kind: ServiceAccount, name: manager", "name: manager}\nsubjects: [{kind: ServiceAccount, name: probe", "binds another subject"},
		"an unknown Role":            {"kind: Role, name: manager}", "kind: Role, name: gone}", "there is no Role gone"},
		"a binding of no one":        {"kind: Role, name: manager}\nsubjects: [{kind: ServiceAccount, name: manager, namespace: demo-system}]", "kind: Role, name: manager}\nsubjects: [{kind: ServiceAccount, name: manager}]", "write demo-system"},
		"not YAML":                   {"kind: Service\n", "kind: [\n", "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := string(install(t))
			if !strings.Contains(stream, tc.old) {
				t.Fatalf("the test's input has no %q", tc.old)
			}
			_, err := build([]byte(strings.Replace(stream, tc.old, tc.new, 1)), demo())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one that says %q", err, tc.want)
			}
		})
	}
}

func TestVersionIsSemantic(t *testing.T) {
	t.Parallel()
	r := demo()
	r.version = "v1.2"
	if _, err := build(install(t), r); err == nil || !strings.Contains(err.Error(), "without a v") {
		t.Errorf("error is %v", err)
	}
}

func TestRunReplacesOldBundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, content := range map[string]string{"/icon.svg": "<svg/>", "/bundle/manifests/old.yaml": "a: b"} {
		if err := os.MkdirAll(dir+"/bundle/manifests", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-version", "1.2.3", "-date", "2026-03-04", "-image", "registry/demo:v1.2.3", "-releaser-image", "registry/demo-releaser:v1.2.3", "-icon", dir + "/icon.svg", "-out", dir}
	if err := run(args, bytes.NewReader(install(t))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/bundle/manifests/old.yaml"); !os.IsNotExist(err) {
		t.Errorf("a file of the earlier bundle is still there: %v", err)
	}
	if _, err := os.Stat(dir + "/bundle/manifests/demo.clusterserviceversion.yaml"); err != nil {
		t.Error(err)
	}
	for flag, want := range map[string]string{"-date": "0.1.0 2026-11-20", "-version": "make bundle", "-icon": "icon"} {
		broken := slices.Clone(args)
		broken[slices.Index(broken, flag)+1] = ""
		if err := run(broken, bytes.NewReader(install(t))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s the error is %v", flag, err)
		}
	}
}

// TestCommittedBundle runs the framework's own validators, so that a mistake shows before the slower make
// bundle-validate. The validator of platforms is left out: it pulls the image by docker.
func TestCommittedBundle(t *testing.T) {
	t.Parallel()
	bundle, err := apimanifests.GetBundleFromDir("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range validation.DefaultBundleValidators.WithValidators(
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.GoodPracticesValidator,
	).Validate(bundle.ObjectsToValidate()...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			if _, apis, ok := strings.Cut(problem.Error(), "Migrate the API(s) for runtimeclasses: "); ok && !strings.Contains(apis, ":") {
				continue // hack/bundle-validate.sh says why
			}
			t.Errorf("%s: %s", result.Name, problem.Error())
		}
	}
}

// The catalogs' pipelines require these of a CSV, but the validators do not.
func TestCommittedBundleMeetsPipelines(t *testing.T) {
	t.Parallel()
	bundle, err := apimanifests.GetBundleFromDir("../../bundle")
	if err != nil {
		t.Fatal(err)
	}
	csv := bundle.CSV
	for _, name := range []string{
		"alm-examples", "capabilities", "categories", "containerImage", "createdAt", "description", "repository", "support",
		"operatorframework.io/suggested-namespace", "operatorframework.io/suggested-namespace-template",
		"features.operators.openshift.io/disconnected", "features.operators.openshift.io/fips-compliant",
		"features.operators.openshift.io/proxy-aware", "features.operators.openshift.io/tls-profiles",
		"features.operators.openshift.io/token-auth-aws", "features.operators.openshift.io/token-auth-azure",
		"features.operators.openshift.io/token-auth-gcp",
	} {
		if csv.Annotations[name] == "" {
			t.Errorf("annotation %s is missing", name)
		}
	}
	for _, label := range []string{"operatorframework.io/arch.amd64", "operatorframework.io/arch.arm64"} {
		if csv.Labels[label] != "supported" {
			t.Errorf("label %s is %q", label, csv.Labels[label])
		}
	}
	for _, mode := range csv.Spec.InstallModes {
		if mode.Supported != (mode.Type == operatorsv1alpha1.InstallModeTypeAllNamespaces) {
			t.Errorf("install mode %s: supported is %t", mode.Type, mode.Supported)
		}
	}
	if n := len(csv.Spec.WebhookDefinitions); n != 0 {
		t.Errorf("%d webhook definitions: OLM v1 refuses the bundle", n)
	}
	examples := csv.Annotations["alm-examples"]
	for _, crd := range csv.Spec.CustomResourceDefinitions.Owned {
		if !strings.Contains(examples, `"kind": "`+crd.Kind+`"`) {
			t.Errorf("there is no example of a %s", crd.Kind)
		}
	}
}
