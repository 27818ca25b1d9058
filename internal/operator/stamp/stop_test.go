package stamp

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestStoppedBy: only the webhook names the user who stopped a capture, and only for this capture.
func TestStoppedBy(t *testing.T) {
	valid := SignStop(testKey, KindPacketCapture, "u-1", "system:serviceaccount:shop:bob")
	for name, tc := range map[string]struct{ annotation, want string }{
		"signed":               {valid, "system:serviceaccount:shop:bob"},
		"none":                 {"", ""},
		"a name alone":         {"bob", ""},
		"no signature":         {":bob", ""},
		"another name":         {strings.Replace(valid, "bob", "eve", 1), ""},
		"a longer name":        {valid + "by", ""},
		"another key":          {SignStop(bytes.Repeat([]byte{9}, KeyBytes), KindPacketCapture, "u-1", "bob"), ""},
		"of another capture":   {SignStop(testKey, KindPacketCapture, "u-2", "bob"), ""},
		"of a Trace":           {SignStop(testKey, "Trace", "u-1", "bob"), ""},
		"parts moved together": {SignStop(testKey, KindPacketCapture+"u", "-1", "bob"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Annotations: map[string]string{sondev1.AnnotationStoppedBy: tc.annotation}}}
			if got := StoppedBy(testKey, pc); got != tc.want {
				t.Errorf("stopped by %q, want %q", got, tc.want)
			}
		})
	}
	if n := len(SignStop(testKey, KindPacketCapture, "u-1", strings.Repeat("a", 1<<10))); n != MaxStopBytes {
		t.Errorf("the longest has %d bytes, and %d are kept", n, MaxStopBytes)
	}
}
