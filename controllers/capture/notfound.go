package capture

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errKindUnclear: the answer to a list of captures was a 404. One whose CRD was deleted gives it, and so does a proxy, or
// an API server that does not serve the kind for a moment.
var errKindUnclear = errors.New("asking again before anything is taken for ownerless")

// A kind is taken for gone when that many answers in a row, over that long, said so.
const (
	kindGoneAnswers = 3
	kindGoneAfter   = 30 * time.Second
	// kindGoneDelay is how soon a sweep is tried again that met such an answer.
	kindGoneDelay = 15 * time.Second
)

// kindAnswers remembers since when the API server has said of a kind that there is no such one.
type kindAnswers struct {
	mu     sync.Mutex
	absent map[string]absence
}

// absence of a kind: how many answers in a row have said so, and since when.
type absence struct {
	since   time.Time
	answers int
}

// judge takes an answer to a read of captures of a kind. It returns no error where there is none, or where what was asked
// for is gone.
func (m *kindAnswers) judge(of string, err error, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !isKindGone(err) {
		delete(m.absent, of)
		return ignoreGone(err)
	}
	a := m.absent[of]
	if a.answers++; a.answers == 1 {
		a.since = now
	}
	if m.absent == nil {
		m.absent = map[string]absence{}
	}
	m.absent[of] = a
	if a.answers < kindGoneAnswers || now.Sub(a.since) < kindGoneAfter {
		return fmt.Errorf("the API server knows no %ss: %w: %w", of, errKindUnclear, err)
	}
	return nil
}

// isGone: the API server says that the object is not there. What says that there is no such page is not the API server's
// storage: on its word nothing may be ended or deleted.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// ignoreGone is err, unless the object is not there.
func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// isKindGone: not the object is missing, but what would hold it.
func isKindGone(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !isGone(err)
}
