// Package eventlimit bounds the Events of each namespace. The recorder remembers each Event for up to 12 minutes, so without a bound a
// user who causes Events could fill the manager's memory, and etcd.
package eventlimit

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// MaxNote of an Event in bytes. The API server refuses more than 1024, and some callers add a reason.
const MaxNote = 1000

// Burst is how many Events a namespace may have at once: one for each Pod of a large capture.
const Burst = 200

const (
	rate       = 0.2  // Events for each second
	namespaces = 1024 // whose Events are counted
)

// Limit bounds the Events of each namespace.
type Limit struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	limits *lru.Cache
}

// New returns a Limit that no namespace has used yet.
func New(c clock.PassiveClock) *Limit { return &Limit{clock: c, limits: lru.New(namespaces)} }

// Allow reports whether one more Event may be written in a namespace, and counts it.
func (l *Limit) Allow(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, ok := l.limits.Get(namespace)
	if !ok {
		limit = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(rate, Burst, l.clock)
		l.limits.Add(namespace, limit)
	}
	return limit.(flowcontrol.PassiveRateLimiter).TryAccept()
}

// Recorder records Events within a Limit, and drops the others: what they say must also be elsewhere. It leaves out the
// resourceVersion of the objects. With it, Events for two versions of an object are two, although they say the same.
type Recorder struct {
	to     events.EventRecorder
	scheme *runtime.Scheme
	limit  *Limit
}

// NewRecorder returns a Recorder that gives its Events to another. All objects must be of kinds in scheme.
func NewRecorder(to events.EventRecorder, scheme *runtime.Scheme, c clock.PassiveClock) *Recorder {
	return &Recorder{to, scheme, New(c)}
}

// Eventf implements events.EventRecorder.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	of := r.reference(regarding)
	if of == nil || !r.limit.Allow(of.Namespace) {
		return
	}
	var other runtime.Object
	if ref := r.reference(related); ref != nil { // a nil pointer in an interface is not nil
		other = ref
	}
	r.to.Eventf(of, other, eventtype, reason, action, note, args...)
}

func (r *Recorder) reference(o runtime.Object) *corev1.ObjectReference {
	if o == nil {
		return nil
	}
	ref, err := reference.GetReference(r.scheme, o)
	if err != nil {
		return nil
	}
	unversioned := *ref // GetReference returns a reference as it is
	unversioned.ResourceVersion = ""
	return &unversioned
}
