package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// imageVariable gives the manager the image of the agents. Tools for disconnected clusters look for the prefix.
const imageVariable = "RELATED_IMAGE_SONDE"

// releaserVariable gives it the image of the releaser.
const releaserVariable = "RELATED_IMAGE_SONDE_RELEASER"

// completeCSV fills the base ClusterServiceVersion in from config/ and the release.
func completeCSV(in *input, r release) (*operatorsv1alpha1.ClusterServiceVersion, error) {
	csv := in.csv.DeepCopy()
	v, err := semver.Parse(r.version)
	if err != nil {
		return nil, fmt.Errorf("parse the version %q: %w; write it like 1.2.3, without a v", r.version, err)
	}
	csv.Name = csvName(in, r)
	csv.Namespace = "placeholder" // as operator-sdk writes it; OLM replaces it
	csv.Spec.Version = version.OperatorVersion{Version: v}
	csv.Spec.Icon = []operatorsv1alpha1.Icon{{Data: base64.StdEncoding.EncodeToString(r.icon), MediaType: "image/svg+xml"}}
	csv.Spec.RelatedImages = []operatorsv1alpha1.RelatedImage{ // in the order of the catalog, which opm sorts
		{Name: in.csv.Name + "-releaser", Image: r.releaserImage}, {Name: in.csv.Name, Image: r.image},
	}
	if csv.Spec.CustomResourceDefinitions.Owned, err = describe(in.csv.Spec.CustomResourceDefinitions.Owned, in.crds); err != nil {
		return nil, err
	}
	if err := annotate(csv, in, r); err != nil {
		return nil, err
	}
	strategy := &csv.Spec.InstallStrategy.StrategySpec
	strategy.DeploymentSpecs = []operatorsv1alpha1.StrategyDeploymentSpec{{
		Name: in.deployment.Name, Label: in.deployment.Labels, Spec: in.deployment.Spec,
	}}
	if err := setImage(strategy.DeploymentSpecs[0].Spec.Template.Spec.Containers, r); err != nil {
		return nil, err
	}
	strategy.ClusterPermissions, err = clusterPermissions(in)
	return csv, err
}

func csvName(in *input, r release) string { return in.csv.Name + ".v" + r.version }

func annotate(csv *operatorsv1alpha1.ClusterServiceVersion, in *input, r release) error {
	examples, err := json.MarshalIndent(in.examples, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the examples: %w", err)
	}
	template, err := namespaceTemplate(in)
	if err != nil {
		return err
	}
	maps.Copy(csv.Annotations, map[string]string{
		"alm-examples":   string(examples),
		"containerImage": r.image,
		"createdAt":      r.date.Format(time.RFC3339),
		"operatorframework.io/suggested-namespace":          in.namespace.GetName(),
		"operatorframework.io/suggested-namespace-template": template,
		// A mirror serves images by digest, not by tag.
		"features.operators.openshift.io/disconnected": fmt.Sprint(strings.Contains(r.image, "@sha256:") && strings.Contains(r.releaserImage, "@sha256:")),
	})
	return nil
}

// namespaceTemplate returns the operator's Namespace as JSON, without the label for the tool that installed it.
func namespaceTemplate(in *input) (string, error) {
	ns := in.namespace.DeepCopy()
	labels := ns.GetLabels()
	delete(labels, "app.kubernetes.io/managed-by")
	ns.SetLabels(labels)
	out, err := json.Marshal(ns)
	if err != nil {
		return "", fmt.Errorf("encode the namespace: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// setImage sets the image of the only container, and the variables with the images of the agents and of the releaser.
func setImage(containers []corev1.Container, r release) error {
	if len(containers) != 1 {
		return fmt.Errorf("the Deployment has %d containers, want 1: extend setImage for more", len(containers))
	}
	containers[0].Image = r.image
	for name, image := range map[string]string{imageVariable: r.image, releaserVariable: r.releaserImage} {
		i := slices.IndexFunc(containers[0].Env, func(v corev1.EnvVar) bool { return v.Name == name })
		if i < 0 {
			return fmt.Errorf("the Deployment does not set %s: without it no Job has an image", name)
		}
		containers[0].Env[i].Value = image
	}
	return nil
}

// clusterPermissions returns the rights that ClusterRoleBindings give the manager's ServiceAccount. The CSV has no
// other permissions: function manifests says where the manager's Role goes, and why.
func clusterPermissions(in *input) ([]operatorsv1alpha1.StrategyDeploymentPermissions, error) {
	account := in.deployment.Spec.Template.Spec.ServiceAccountName
	var out []operatorsv1alpha1.StrategyDeploymentPermissions
	for _, b := range in.clusterRoleBindings {
		if !bindsOnly(b.Subjects, account) {
			return nil, fmt.Errorf("ClusterRoleBinding %s binds another subject than %s: a bundle cannot hold such a binding", b.Name, account)
		}
		role, ok := in.clusterRoles[b.RoleRef.Name]
		if !ok {
			return nil, fmt.Errorf("ClusterRoleBinding %s: there is no ClusterRole %s", b.Name, b.RoleRef.Name)
		}
		out = append(out, operatorsv1alpha1.StrategyDeploymentPermissions{ServiceAccountName: account, Rules: role.Rules})
	}
	return out, nil
}

func bindsOnly(subjects []rbacv1.Subject, account string) bool {
	return len(subjects) == 1 && subjects[0].Kind == rbacv1.ServiceAccountKind && subjects[0].Name == account
}
