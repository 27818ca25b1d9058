package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// large is an API server whose objects are too large to read.
type large struct{ client.Reader }

func (large) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return fmt.Errorf("get: %w: it has more than 1024 KiB as JSON", fewreads.ErrTooLarge)
}

// TestLargeTarget: a workload that is too large to read is refused, and the user learns which.
func TestLargeTarget(t *testing.T) {
	_, err := admission.TargetPodSpec(t.Context(), large{}, "shop", sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"})
	if refusal, ok := errors.AsType[*admission.Refusal](err); !ok || refusal.Code != 422 || !strings.Contains(refusal.Message, "Deployment shop/web: ") ||
		!strings.Contains(refusal.Message, "too large") {
		t.Errorf("got %v, want a refusal that names the object", err)
	}
}
