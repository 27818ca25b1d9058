//go:build e2e

package collector

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// A Collector is deleted while no manager runs. Nothing hangs, and nothing is left.
func TestCollectorDeletedWithoutOperator(t *testing.T) {
	ns := cluster.OpenedNamespace(t)
	c := create(t, ns, nil)
	cluster.StopManager(t)
	cluster.DeleteNow(t, c)
	cluster.NoRelease(t, ns, time.Minute)
}
