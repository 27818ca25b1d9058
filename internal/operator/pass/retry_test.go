package pass

import (
	"strings"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestRetryRequested(t *testing.T) {
	if got := RetryRequested(nil); got != "" {
		t.Errorf("without the annotation: %q", got)
	}
	most := strings.Repeat("x", maxRetry)
	for annotation, want := range map[string]string{
		"": "=", "now": "=now", most: "=" + most, strings.Repeat("x", 200<<10): "=" + most, most[1:] + "é": "=" + most[1:],
	} {
		if got := RetryRequested(map[string]string{sondev1.AnnotationRetry: annotation}); got != want {
			t.Errorf("%.20q of %d bytes: %.20q of %d bytes", annotation, len(annotation), got, len(got))
		}
	}
}
