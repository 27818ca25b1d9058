package sweep

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/gone"
)

// errKindUnclear reports that a list of owners got a 404. A deleted CRD causes it, but so does a proxy, or an API server that
// does not serve the kind for a moment.
var errKindUnclear = errors.New("re-reading the owners before deleting their objects")

// RetryDelay is the pause before a sweep that got such an answer runs again.
const RetryDelay = 15 * time.Second

// missingKinds finds out which kinds are gone.
type missingKinds struct {
	mu     sync.Mutex
	absent map[string]*gone.Kind
}

// check takes the error of reading owners of a kind. It returns nil if the owner or the whole kind is known to be gone.
func (m *missingKinds) check(kind string, err error, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !gone.IsKind(err) {
		delete(m.absent, kind)
		return gone.Ignore(err)
	}
	if m.absent == nil {
		m.absent = map[string]*gone.Kind{}
	}
	if m.absent[kind] == nil {
		m.absent[kind] = &gone.Kind{}
	}
	if !m.absent[kind].Note(err, now) {
		return fmt.Errorf("the API server does not serve %ss: %w: %w", kind, errKindUnclear, err)
	}
	return nil
}
