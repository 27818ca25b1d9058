//go:build e2e

// Package fluentpvc tests on a real cluster that each Pod gets its volume and its sidecar, that a Job processes the volume after the
// Pod has ended, and that nothing of it remains. hack/e2e.sh runs it.
package fluentpvc

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"
)

// patience is how long tests wait for what takes seconds. Where a time is promised, a test has its own bound.
const patience = 3 * time.Minute

// parallel is how many tests run at the same time. They mostly wait, so they are more than the processors. Two of them are the modes
// of TestFluentPVCSidecarEnds, with 16 Pods each.
const parallel = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := errors.Join(cluster.Setup(), flag.Set("test.parallel", parallel)); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
