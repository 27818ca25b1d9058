package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func forbidden(text string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "packetcaptures"}, "", errors.New(text))
}

// TestDescribeHasNoEscapes: the text of a hostile server neither sets a terminal's title nor clears its screen.
func TestDescribeHasNoEscapes(t *testing.T) {
	hostile := "two\nlines \x1b]0;pwned\a\x1b[2J\r\u009b2J\u202e\x9b end"
	for name, err := range map[string]error{
		"API server":       apierrors.NewBadRequest(hostile),
		"no known reason":  &apierrors.StatusError{ErrStatus: metav1.Status{Message: hostile}},
		"webhook":          apierrors.NewInternalError(errors.New(`failed calling webhook "packetcapture.monitoring.openshift.tpg": ` + hostile)),
		"missing role":     forbidden("User cannot " + hostile),
		"results endpoint": errors.New("the manager refuses: " + hostile),
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(err)
			for _, c := range got {
				if c != '\n' && !unicode.IsPrint(c) {
					t.Fatalf("%U in %q", c, got)
				}
			}
			if !utf8.ValidString(got) || !strings.Contains(got, "two\nlines ") || !strings.Contains(got, " end") {
				t.Errorf("got %q, want the rest of the text", got)
			}
		})
	}
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
		"no role for bindings": {
			err: apierrors.NewForbidden(schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "fluentpvcbindings"}, "x",
				errors.New(`User "eve" cannot get resource "fluentpvcbindings" in API group "monitoring.openshift.tpg" in the namespace "shop"`)),
			want: []string{"sonde-edit in namespace shop"}, wantNever: "sonde-capture",
		},
		"no CRD for bindings": {
			err:  apierrors.NewNotFound(schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "fluentpvcbindings"}, ""),
			want: []string{"no FluentPVCBindings", "older than this plugin"}, wantNever: "PacketCapture",
		},
		"no role in all namespaces": {
			err:  forbidden(`User "eve" cannot list resource "packetcaptures" in API group "monitoring.openshift.tpg" at the cluster scope`),
			want: []string{"Omit -A", "ClusterRoleBinding", "sonde-view"}, wantNever: "sonde-edit",
		},
		"no answer of the API server": {
			err: fmt.Errorf("get PacketCapture: %w", &url.Error{
				Op: "Get", URL: "https://api.example.com:6443/apis/x", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			}),
			want: []string{"error: get PacketCapture", "connection refused\n", "your kubeconfig (https://api.example.com:6443)", "--context"}, wantNever: "Sonde",
		},
		"no answer of another program": {err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, want: []string{"error: dial: connection refused"}, wantNever: "server"},
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
