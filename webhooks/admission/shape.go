package admission

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// maxTime is the length of a time in the schemas.
const maxTime = 16

// CheckTime refuses a time that does not parse or lies outside of its bounds, as the schema does after the webhook. bounds names
// them for people.
func CheckTime(field, text string, least, most time.Duration, bounds string) error {
	if len(text) > maxTime {
		return Invalid("%s has %d characters: write seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\"", field, len(text))
	}
	d, err := duration.Parse(text)
	if err != nil {
		return Invalid("%s: %v", field, err)
	}
	if d < least || d > most {
		return Invalid("%s must lie %s", field, bounds)
	}
	return nil
}

// RequireRunning refuses every new object of a kind while the operator is paused.
func RequireRunning(ctx context.Context, live client.Reader, operatorNamespace, kindName string) error {
	paused, err := pause.Requested(ctx, live, operatorNamespace)
	if err != nil {
		return err
	}
	if paused {
		return Forbidden("%s", pause.Message(operatorNamespace, kindName))
	}
	return nil
}
