package gone

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
)

// A kind counts as gone after kindAnswers in a row that say so, over at least kindAfter. A deleted CRD causes them, but so does a proxy,
// or an API server that does not serve the kind for a moment.
const (
	kindAnswers = 3
	kindAfter   = 30 * time.Second
)

// Kind counts how often, and since when, the API server has answered that it does not serve a kind. The zero value has no answers.
type Kind struct {
	since   time.Time
	answers int
}

// Note counts an answer, and reports whether the kind counts as gone.
func (k *Kind) Note(err error, now time.Time) bool {
	if !IsKind(err) {
		*k = Kind{}
		return false
	}
	if k.answers++; k.answers == 1 {
		k.since = now
	}
	return k.answers >= kindAnswers && now.Sub(k.since) >= kindAfter
}

// IsKind reports whether the kind, and not just one object, is missing.
func IsKind(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !Is(err)
}
