package webhooks

import (
	"regexp"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// Forms of names, as the schema has them: names of the API never reach a lookup in another form.
var (
	jobIDForm     = regexp.MustCompile(`^[a-z0-9]{4}$`)
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	workloadForm  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	tokenHashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Bounds of durations, as the schema has them.
const (
	minDuration, maxDuration = time.Second, 24 * time.Hour
	minRetain, maxRetain     = 10 * time.Second, 168 * time.Hour
)

// checkTarget refuses what the schema would refuse after the webhook, in the same words where the
// decision depends on it, or where a lookup would answer something misleading before.
func checkTarget(capture sondev1.Capture, namespace, deployment string, ref *sondev1.TargetReference) error {
	id := capture.Common().JobID
	switch {
	case deployment == "" && ref == nil:
		return invalid("name a target: set targetDeployment: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}")
	case deployment != "" && ref != nil:
		return invalid("two targets at once: set either targetDeployment or targetRef, and make a second %s for the other", capture.KindName())
	case namespace != "" && !namespaceForm.MatchString(namespace):
		return invalid("targetNamespace must be the name of a namespace, like shop; leave it out for the capture's own")
	case deployment != "" && !workloadForm.MatchString(deployment):
		return invalid("targetDeployment must be the name of a Deployment, like web")
	case ref != nil && !workloadForm.MatchString(ref.Name):
		return invalid("targetRef.name must be the name of a workload, like web")
	case id != "" && !jobIDForm.MatchString(id):
		return invalid("jobId must be four characters of [a-z0-9], like qwer; leave it out to have one made")
	}
	return nil
}

func checkDuration(text string) error {
	return checkTime("duration", text, minDuration, maxDuration, "between 1s and 24h")
}

func checkRetain(text string) error {
	return checkTime("retainFor", text, minRetain, maxRetain, "between 10s and 168h")
}

func checkTime(field, text string, least, most time.Duration, bounds string) error {
	if len(text) > 16 {
		return invalid("%s has %d characters: write seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\"", field, len(text))
	}
	d, err := duration.Parse(text)
	if err != nil {
		return invalid("%s: %v", field, err)
	}
	if d < least || d > most {
		return invalid("%s must lie %s", field, bounds)
	}
	return nil
}
