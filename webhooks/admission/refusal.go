package admission

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of texts in answers, in bytes. Parts of them are texts of users.
const (
	MaxMessageBytes = 2048
	// MaxWarningBytes is below 256, where the API server cuts warnings.
	MaxWarningBytes = 250
)

// Refusal is a decision against a request, in words for the user. Every other error is a failure of the operator.
type Refusal struct {
	Reason  metav1.StatusReason
	Code    int32
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Forbidden refuses a request because its user lacks a right.
func Forbidden(format string, args ...any) error {
	return &Refusal{metav1.StatusReasonForbidden, http.StatusForbidden, fmt.Sprintf(format, args...)}
}

// Invalid refuses a request that would be wrong from any user.
func Invalid(format string, args ...any) error {
	return &Refusal{metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, fmt.Sprintf(format, args...)}
}

// TooMany refuses a request that may succeed a little later.
func TooMany(format string, args ...any) error {
	return &Refusal{metav1.StatusReasonTooManyRequests, http.StatusTooManyRequests, fmt.Sprintf(format, args...)}
}
