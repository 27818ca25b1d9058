package health

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Exists returns a readiness check that fails until an object exists. After that it never fails: if somebody deletes the object, the leader
// creates it again, and replicas that are not ready would serve no webhook meanwhile.
func Exists(from client.Reader, o client.Object) func(*http.Request) error {
	var found atomic.Bool
	return func(r *http.Request) error {
		if found.Load() {
			return nil
		}
		current := o.DeepCopyObject().(client.Object)
		if err := from.Get(r.Context(), client.ObjectKeyFromObject(o), current); err != nil {
			return fmt.Errorf("%T %s is not there yet, the leader creates it: see the leader's log for the reason: %w", o, o.GetName(), err)
		}
		found.Store(true)
		return nil
	}
}
