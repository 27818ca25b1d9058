package stamp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// MaxStopBytes bounds the annotation of a stop: no user name is longer than 1 KiB.
const MaxStopBytes = 2*sha256.Size + len(stopSeparator) + 1<<10

const (
	stopDomain    = "sonde-stop-v1"
	stopSeparator = ":"
)

// SignStop returns the annotation that binds the stop of an object to the user who requested it. uid is the object's.
func SignStop(key []byte, kind string, uid types.UID, username string) string {
	return hex.EncodeToString(MAC(key, stopDomain, kind, string(uid), username)) + stopSeparator + username
}

// StoppedBy returns the user who requested the stop of a capture, or "" if the webhook that holds key has not signed it.
func StoppedBy(key []byte, capture sondev1.Capture) string {
	annotation := capture.GetAnnotations()[sondev1.AnnotationStoppedBy]
	_, username, _ := strings.Cut(annotation, stopSeparator)
	if !hmac.Equal([]byte(annotation), []byte(SignStop(key, capture.KindName(), capture.GetUID(), username))) {
		return ""
	}
	return username
}
