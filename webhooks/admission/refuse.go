package admission

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Refuse answers a request that was refused by a Refusal, or that the operator failed to decide on. It records the answer.
func Refuse(ctx context.Context, req webhook.AdmissionRequest, err error) webhook.AdmissionResponse {
	return respond(ctx, req, Granted{}, err)
}
