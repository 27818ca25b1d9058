package stamp

import (
	"errors"
	"fmt"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// ErrNoNamespace says that a stamp does not name the namespace that it is for. Earlier builds of version 0.3.0 made such stamps.
var ErrNoNamespace = errors.New("its stamp names no namespace")

// SignCollector returns the two annotations that bind the name and the spec of c to claim.Requester, who created c or changed it last.
// The caller sets Requester, TargetNamespaceUID and IssuedAt of claim.
func SignCollector(key []byte, c *sondev1.Collector, claim Claim) (map[string]string, error) {
	return Sign(key, collectorScope(c), sondev1.CollectorKind, &c.Spec, claim)
}

// VerifyCollector returns the claim of c if the webhook that holds key admitted a Collector with exactly this name and spec. A
// Collector is changed long after its creation, so the stamp has no bound in time; see VerifyFluentPVC. The caller compares
// TargetNamespaceUID with the release's namespace. The error wraps ErrMissing, ErrInvalid or ErrNoNamespace.
func VerifyCollector(key []byte, c *sondev1.Collector) (Claim, error) {
	claim, err := verifyAnyTime(key, collectorScope(c), sondev1.CollectorKind, &c.Spec, c.Annotations)
	if err == nil && claim.TargetNamespaceUID == "" {
		return Claim{}, fmt.Errorf("%s: %w: %s", sondev1.CollectorKind, ErrNoNamespace, advice)
	}
	return claim, err
}

func collectorScope(c *sondev1.Collector) string { return c.Namespace + "/" + c.Name }
