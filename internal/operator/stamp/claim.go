// Package stamp binds a custom resource to its requester. The webhook signs. The controller and the results endpoint verify,
// and do nothing for a resource without a valid stamp.
//
// The stamp is an HMAC over namespace, kind, spec and claim. The resource can still be changed in the API server, but every
// change shows, because only the manager has the key.
package stamp

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-operator/sonde/internal/operator/access"
)

// Version of the claim written by this package.
const Version = 1

// Bounds of a claim. The API server allows 256 KiB of annotations in all.
const (
	maxClaimBytes = 128 << 10
	maxFields     = 128
)

// Claim records the facts that the webhook established when it admitted a resource.
type Claim struct {
	Version int `json:"v"`
	// Requester who created the resource.
	Requester access.Requester `json:"requester"`
	// TargetNamespaceUID pins the target's namespace: one of the same name made later is another.
	TargetNamespaceUID string `json:"targetNamespaceUID"`
	// IssuedAt is when the resource was admitted. It must agree with the creation time, so that a
	// stamp copied to another resource is worth nothing a minute later.
	IssuedAt time.Time `json:"issuedAt"`
	// RequestUID of the API server's review distinguishes the stamps of two equal resources of one second. Stamps of versions
	// without it are valid, too.
	RequestUID string `json:"requestUID,omitempty"`
	// Fields are the top-level keys of the spec that this version's types had. Only they are
	// signed, set or not, so that a default that a later version adds breaks no stamp.
	Fields []string `json:"fields"`
}

// ParseClaim reads the annotation that holds a claim. Any user can write annotations while no
// webhook runs: ParseClaim checks sizes, and Verify checks who wrote them.
func ParseClaim(s string) (Claim, error) {
	if len(s) > maxClaimBytes {
		return Claim{}, fmt.Errorf("parse requester: %d bytes, at most %d", len(s), maxClaimBytes)
	}
	var c Claim
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return Claim{}, fmt.Errorf("parse requester: %w", err)
	}
	switch {
	case c.Version < 1 || c.Version > Version:
		return Claim{}, fmt.Errorf("parse requester: version %d, known are 1 to %d: upgrade the operator", c.Version, Version)
	case c.Requester.Username == "":
		return Claim{}, errors.New("parse requester: no user name")
	case len(c.Fields) == 0 || len(c.Fields) > maxFields:
		return Claim{}, fmt.Errorf("parse requester: %d signed fields, want 1 to %d", len(c.Fields), maxFields)
	}
	return c, nil
}

func (c Claim) marshal() ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("marshal requester: %w", err)
	}
	if len(b) > maxClaimBytes {
		return nil, fmt.Errorf("the requester's groups and extra fields take %d bytes, at most %d fit an annotation: use an account with fewer groups", len(b), maxClaimBytes)
	}
	return b, nil
}
