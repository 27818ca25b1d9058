package capture

import (
	"regexp"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// jobIDForm is the schema's.
var jobIDForm = regexp.MustCompile(`^[a-z0-9]{4}$`)

// Bounds of durations, as in the schema.
const (
	minDuration, maxDuration = time.Second, 24 * time.Hour
	minRetain, maxRetain     = 10 * time.Second, 168 * time.Hour
)

// checkTarget refuses what the schema would refuse after the webhook, so that no lookup is made with a malformed name and
// no misleading answer comes first.
func checkTarget(capture sondev1.Capture, namespace, deployment string, ref *sondev1.TargetReference) error {
	id := capture.Common().JobID
	switch {
	case deployment == "" && ref == nil:
		return admission.Invalid("name a target: set targetDeployment: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}")
	case deployment != "" && ref != nil:
		return admission.Invalid("two targets at once: set either targetDeployment or targetRef, and make a second %s for the other", capture.KindName())
	case namespace != "" && !admission.IsNamespaceName(namespace):
		return admission.Invalid("targetNamespace must be the name of a namespace, like shop; leave it out for the capture's own")
	case deployment != "" && !admission.IsObjectName(deployment):
		return admission.Invalid("targetDeployment must be the name of a Deployment, like web")
	case ref != nil && !admission.IsObjectName(ref.Name):
		return admission.Invalid("targetRef.name must be the name of a workload, like web")
	case id != "" && !jobIDForm.MatchString(id):
		return admission.Invalid("jobId must be four characters of [a-z0-9], like qwer; leave it out to let the operator choose one")
	}
	return nil
}

func checkDuration(text string) error {
	return admission.CheckTime("duration", text, minDuration, maxDuration, "between 1s and 24h")
}

func checkRetain(text string) error {
	return admission.CheckTime("retainFor", text, minRetain, maxRetain, "between 10s and 168h")
}
