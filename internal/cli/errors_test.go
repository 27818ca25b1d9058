package cli

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func forbidden(text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "packetcaptures"}, "", errors.New(text))
}

func TestDescribe(t *testing.T) {
	away := `failed calling webhook "packetcapture.monitoring.openshift.tpg": failed to call webhook: Post "https://sonde-webhook.sonde-system.svc:443/mutate-monitoring-openshift-tpg-v1alpha1-packetcapture/00112233445566778899aabbccddeeff?timeout=10s": no endpoints available for service "sonde-webhook"`
	for name, tc := range map[string]struct {
		err       error
		want      []string
		wantNever string
	}{
		"the webhook is away": {
			err:       apierrors.NewInternalError(errors.New(away)),
			want:      []string{"sonde-manager", "no endpoints available", "only deleted"},
			wantNever: "00112233445566778899aabbccddeeff",
		},
		"another's webhook is away": {
			err:  apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": no endpoints available`)),
			want: []string{"Error from server (InternalError)", "policy.example.com"}, wantNever: "sonde-manager",
		},
		"no role in a namespace": {
			err:  forbidden(`User "eve" cannot list resource "packetcaptures" in API group "monitoring.openshift.tpg" in the namespace "shop"`),
			want: []string{"sonde-edit in namespace shop.", "sonde-capture in the namespace of the target"}, wantNever: "-A",
		},
		"no role in a hub": {
			err: &targetError{
				forbidden(`User "eve" cannot create resource "packetcaptures" in API group "monitoring.openshift.tpg" in the namespace "hub"`), "shop",
			},
			want: []string{"sonde-edit in namespace hub.", "sonde-capture in namespace shop, where the target is"}, wantNever: "that namespace",
		},
		"no role for traces": {
			err: apierrors.NewForbidden(schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "traces"}, "",
				errors.New(`User "eve" cannot create resource "traces" in API group "monitoring.openshift.tpg" in the namespace "shop"`)),
			want: []string{"sonde-edit", "sonde-trace"}, wantNever: "sonde-capture",
		},
		"no role in all namespaces": {
			err:  forbidden(`User "eve" cannot list resource "packetcaptures" in API group "monitoring.openshift.tpg" at the cluster scope`),
			want: []string{"Omit -A", "ClusterRoleBinding", "sonde-view"}, wantNever: "sonde-edit",
		},
		"no answer of the API server": {err: errors.New("connection refused"), want: []string{"error: connection refused"}, wantNever: "server"},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(tc.err)
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
			if strings.Contains(got, tc.wantNever) {
				t.Errorf("%q in\n%s", tc.wantNever, got)
			}
		})
	}
}
