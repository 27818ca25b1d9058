package stamp

import (
	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// SignCollector returns the two annotations that bind the name and the spec of c to claim.Requester, who created c or changed it last.
// The caller sets Requester and IssuedAt of claim.
func SignCollector(key []byte, c *sondev1.Collector, claim Claim) (map[string]string, error) {
	return Sign(key, collectorScope(c), sondev1.CollectorKind, &c.Spec, claim)
}

// VerifyCollector returns the claim of c if the webhook that holds key admitted a Collector with exactly this name and spec. A
// Collector is changed long after its creation, so the stamp has no bound in time; see VerifyFluentPVC.
func VerifyCollector(key []byte, c *sondev1.Collector) (Claim, error) {
	return verifyAnyTime(key, collectorScope(c), sondev1.CollectorKind, &c.Spec, c.Annotations)
}

func collectorScope(c *sondev1.Collector) string { return c.Namespace + "/" + c.Name }
