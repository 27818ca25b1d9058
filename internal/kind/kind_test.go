package kind_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// TestCaptures checks that each value is consistent and differs from all others.
func TestCaptures(t *testing.T) {
	owners := map[string]string{}
	for _, k := range kind.Captures {
		if got := k.New().KindName(); got != k.Name {
			t.Errorf("New of %s returns a %s", k.Name, got)
		}
		if n := len(k.NewList().Captures()); n != 0 {
			t.Errorf("%s: a new list has %d items", k.Name, n)
		}
		if found, ok := kind.CaptureOf(k.Name); !ok || found.Verb != k.Verb {
			t.Errorf("CaptureOf(%q) is %q, %v", k.Name, found.Name, ok)
		}
		if !strings.EqualFold(k.Resource, k.Name+"s") {
			t.Errorf("resource of %s is %s, want the plural with an s, as in messages", k.Name, k.Resource)
		}
		if k.Count(sondev1.Totals{}) == "" || k.Records == "" || k.Verb == "" {
			t.Errorf("%s: a field is empty: %+v", k.Name, k)
		}
		for what, value := range map[string]string{"resource": k.Resource, "app": k.App, "verb": k.Verb} {
			if other, taken := owners[what+value]; taken {
				t.Errorf("%s and %s have the same %s %s", other, k.Name, what, value)
			}
			owners[what+value] = k.Name
		}
	}
	if _, ok := kind.CaptureOf("ConfigMap"); ok {
		t.Error("CaptureOf finds ConfigMap")
	}
}

func TestArgument(t *testing.T) {
	for want, k := range map[string]kind.Capture{"web": kind.PacketCapture, "trace/web": kind.Trace} {
		if got := k.Argument("web"); got != want {
			t.Errorf("%s: %q, want %q", k.Name, got, want)
		}
	}
}

// TestOnNode checks that a hostNetwork Pod needs the right on nodes, for every kind.
func TestOnNode(t *testing.T) {
	for _, k := range kind.Captures {
		if got := k.OnNode(&corev1.PodSpec{HostNetwork: true}); got != kind.FieldHostNetwork {
			t.Errorf("%s: OnNode of a hostNetwork Pod is %q", k.Name, got)
		}
		if got := k.OnNode(&corev1.PodSpec{}); got != "" {
			t.Errorf("%s: OnNode of an ordinary Pod is %q", k.Name, got)
		}
	}
}

// TestOnNodeByProcesses checks that hostPID matters for traces and not for packets. A trace names hostPID before hostNetwork.
func TestOnNodeByProcesses(t *testing.T) {
	both := &corev1.PodSpec{HostPID: true, HostNetwork: true}
	for name, tc := range map[string]struct {
		kind kind.Capture
		spec *corev1.PodSpec
		want string
	}{
		"packets":         {kind.PacketCapture, &corev1.PodSpec{HostPID: true}, ""},
		"packets, both":   {kind.PacketCapture, both, kind.FieldHostNetwork},
		"processes":       {kind.Trace, &corev1.PodSpec{HostPID: true}, kind.FieldHostPID},
		"processes, both": {kind.Trace, both, kind.FieldHostPID},
	} {
		if got := tc.kind.OnNode(tc.spec); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
