package sweep

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sonde-operator/sonde/internal/gone"
)

// errKindUnclear reports that a list of owners got a 404. A deleted CRD causes it, but so does a proxy, or an API server that
// does not serve the kind for a moment.
var errKindUnclear = errors.New("re-reading the owners before deleting their objects")

// A kind counts as gone after kindGoneAnswers such answers in a row, over at least kindGoneAfter.
const (
	kindGoneAnswers = 3
	kindGoneAfter   = 30 * time.Second
	// RetryDelay is the pause before a sweep that got such an answer runs again.
	RetryDelay = 15 * time.Second
)

// missingKinds counts how often, and since when, the API server has answered that it does not serve a kind.
type missingKinds struct {
	mu     sync.Mutex
	absent map[string]absence
}

// absence counts the answers in a row, and says when the first one came.
type absence struct {
	since   time.Time
	answers int
}

// check takes the error of reading owners of a kind. It returns nil if the owner or the whole kind is known to be gone.
func (m *missingKinds) check(kind string, err error, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !isKindGone(err) {
		delete(m.absent, kind)
		return gone.Ignore(err)
	}
	a := m.absent[kind]
	if a.answers++; a.answers == 1 {
		a.since = now
	}
	if m.absent == nil {
		m.absent = map[string]absence{}
	}
	m.absent[kind] = a
	if a.answers < kindGoneAnswers || now.Sub(a.since) < kindGoneAfter {
		return fmt.Errorf("the API server does not serve %ss: %w: %w", kind, errKindUnclear, err)
	}
	return nil
}

// isKindGone reports whether the kind, and not just one object, is missing.
func isKindGone(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !gone.Is(err)
}
