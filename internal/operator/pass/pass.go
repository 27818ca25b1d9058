// Package pass has what the passes of reconcilers share: writing the status that a pass computed, waiting for the cache after a
// conflict, and a user's request for another attempt.
package pass

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/gone"
)

// ConflictDelay is the delay of the next pass after one that read a stale object.
const ConflictDelay = 500 * time.Millisecond

// PatchStatus writes the status of object, which the pass read as before; was and is point to their statuses. It fails with a
// conflict if the spec or the status changed meanwhile: everything else that the pass read may be stale too. An object that is gone
// is no error. The lock on the resourceVersion also fails if only metadata changed. A user can change that faster than passes
// follow, so the second patch tests the spec and the status alone. It is twice as large.
func PatchStatus(ctx context.Context, c client.StatusClient, object, before client.Object, was, is any, owner client.FieldOwner) error {
	lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := c.Status().Patch(ctx, object, lock, owner)
	if apierrors.IsConflict(err) {
		tested, terr := replaceStatus(before, was, is)
		if terr != nil {
			return fmt.Errorf("build patch of status: %w", terr)
		}
		if c.Status().Patch(ctx, object, tested, owner) == nil {
			return nil
		}
	}
	if gone.Ignore(err) != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	return nil
}

// replaceStatus returns a JSON patch that fails if the object has another UID, spec or status than before.
func replaceStatus(before client.Object, was, is any) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if reflect.ValueOf(was).Elem().IsZero() {
		was = nil // the API server has no field
	}
	data, err := json.Marshal([]operation{
		{"test", "/metadata/uid", before.GetUID()},
		{"test", "/metadata/generation", before.GetGeneration()},
		{"test", "/status", was},
		{"add", "/status", is},
	})
	return client.RawPatch(types.JSONPatchType, data), err
}

// RequeueOnConflict turns a conflict into a delay, in which the cache catches up.
func RequeueOnConflict(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return result, err
}
