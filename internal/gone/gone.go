// Package gone tells an object that does not exist from an API server that does not answer for its kind.
package gone

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Is reports whether the API server says that the object does not exist. It is false for a 404 of the whole path, which does
// not come from the API server's storage: nothing may be ended or deleted because of that.
func Is(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Ignore returns err, or nil if it says that the object does not exist.
func Ignore(err error) error {
	if Is(err) {
		return nil
	}
	return err
}
