//go:build api

package api

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func manyLabels(n, length int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels["test/l"+strconv.Itoa(i)] = strings.Repeat("x", length)
	}
	return labels
}

// Metadata, which no schema bounds, is bounded by the webhook and within what clients write.
func TestWebhookBoundsMetadata(t *testing.T) {
	serveWebhooks(t)
	ns := namespace(t, nil)
	web(t, ns)
	for name, tc := range map[string]struct {
		labels     map[string]string
		annotation int
		want       string
	}{
		"64 labels":                 {labels: manyLabels(64, 63)},
		"the largest annotations":   {annotation: 250 << 10},
		"65 labels":                 {labels: manyLabels(65, 1), want: "metadata.labels has 65 entries, and a PacketCapture may have 64: remove some"},
		"2.9 MiB of labels":         {labels: manyLabels(36_000, 63), want: "and the operator reads at most 1024 KiB: shorten its fields, labels and annotations"},
		"2.9 MiB in one annotation": {annotation: 2900 << 10, want: "reads at most 1024 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(ns, with(nil))
			o.SetLabels(tc.labels)
			if tc.annotation > 0 {
				o.SetAnnotations(map[string]string{"a": strings.Repeat("x", tc.annotation)})
			}
			err := admin.Create(t.Context(), o, client.DryRunAll)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %.500v, want %q", err, tc.want)
			}
		})
	}
	o := object(ns, with(nil))
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.SetLabels(manyLabels(10_000, 63))
	if err := admin.Update(t.Context(), o); err == nil || !strings.Contains(err.Error(), "metadata.labels has 10000 entries") {
		t.Errorf("got %.500v for an update", err)
	}
	o.SetLabels(manyLabels(64, 63))
	if err := admin.Update(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// Objects that are too large, created all the time, keep no other creation out.
func TestWebhookInAFlood(t *testing.T) {
	serveWebhooks(t)
	ns, other := namespace(t, nil), namespace(t, nil)
	web(t, ns)
	web(t, other)
	large := object(ns, with(nil))
	large.SetLabels(manyLabels(36_000, 63))
	var flood errgroup.Group
	ended := make(chan struct{})
	for range 10 {
		flood.Go(func() error {
			for {
				select {
				case <-ended:
					return nil
				default:
				}
				if err := admin.Create(t.Context(), large.DeepCopy(), client.DryRunAll); !apierrors.IsRequestEntityTooLargeError(err) {
					return err
				}
			}
		})
	}
	for range 10 {
		if err := admin.Create(t.Context(), object(other, with(nil)), client.DryRunAll); err != nil {
			t.Error(err)
		}
	}
	close(ended)
	if err := flood.Wait(); err != nil {
		t.Errorf("got %.500v for a large object", err)
	}
}
