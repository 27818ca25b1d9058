package capture

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// A capture that was deleted and created anew under its name, while no watch was open, is another one.
func TestFollowEndsWhenAnotherCaptureHasTheName(t *testing.T) {
	pc := running()
	pc.UID = "first"
	f := follow(t, pc, silent, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			if pc, ok := o.(*v1alpha1.PacketCapture); ok {
				pc.UID, pc.Status.Phase = "second", v1alpha1.PhaseCompleted
			}
			return nil
		},
	})
	if err := f.await(t); !errors.Is(err, ErrDeleted) {
		t.Errorf("%v, and the capture %s is taken for the followed one", err, f.state.Capture.GetUID())
	}
}
