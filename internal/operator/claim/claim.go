// Package claim names the claims of Pods that have a FluentPVC, and signs those names. The webhook writes a Pod's claim into an
// annotation; the controller creates the claim only if the signature is valid. So no user can have a claim created, or processed
// by a finalizer Job, under a name of theirs.
package claim

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

const (
	// maxBase is how much of a FluentPVC's name begins the name of a claim, which is at most 60 bytes: the names of its Jobs add
	// the number of the attempt.
	maxBase = 40
	// randomChars of a name distinguish the claims of one FluentPVC in a namespace.
	randomChars = 10
	hashBytes   = 4
	maxName     = maxBase + 1 + 2*hashBytes + 1 + randomChars
)

// domain separates this HMAC from others with the same key.
const domain = "sonde-claim-v1"

// NewName returns the name of a new claim: the FluentPVC's name, a hash of namespace and FluentPVC, and 10 random characters.
func NewName(namespace, fluentPVC string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + fluentPVC))
	return naming.Cut(fluentPVC, maxBase) + "-" + hex.EncodeToString(sum[:hashBytes]) + "-" + strings.ToLower(rand.Text()[:randomChars])
}

// IsName reports whether a name has the form of NewName's names.
func IsName(name string) bool {
	parts := strings.Split(name, "-")
	if len(name) > maxName || len(parts) < 3 {
		return false
	}
	random, hash := parts[len(parts)-1], parts[len(parts)-2]
	// Kubernetes takes any text as a Pod's claimName, also one with a comma, which separates names in the cache.
	return len(validation.IsDNS1123Subdomain(name)) == 0 && len(random) == randomChars && strings.Trim(random, "abcdefghijklmnopqrstuvwxyz234567") == "" &&
		len(hash) == 2*hashBytes && strings.Trim(hash, "0123456789abcdef") == ""
}

// Ref is what a Pod's annotation says: the FluentPVC that the webhook used, and the name of the claim.
type Ref struct {
	FluentPVC string
	Claim     string
}

// Sign returns the value of sondev1.AnnotationClaim for a Pod of this namespace: FLUENTPVC/CLAIM/HMAC in hex.
func (r Ref) Sign(key []byte, namespace string) string {
	return r.FluentPVC + "/" + r.Claim + "/" + hex.EncodeToString(r.mac(key, namespace))
}

// Parse reads the annotation of a Pod in this namespace. It reports false for a value that the webhook did not write for this
// namespace. A valid value may be copied from another Pod of the namespace.
func Parse(key []byte, namespace, annotation string) (Ref, bool) {
	parts := strings.Split(annotation, "/")
	if len(parts) != 3 {
		return Ref{}, false
	}
	r := Ref{FluentPVC: parts[0], Claim: parts[1]}
	// The text is compared, so that one claim has one valid annotation: hex in capitals means the same.
	if !hmac.Equal([]byte(annotation), []byte(r.Sign(key, namespace))) {
		return Ref{}, false
	}
	return r, true
}

func (r Ref) mac(key []byte, namespace string) []byte {
	return stamp.MAC(key, domain, namespace, r.FluentPVC, r.Claim)
}
