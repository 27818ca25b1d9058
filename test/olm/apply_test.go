//go:build olm

package olm

import (
	"bytes"
	"context"
	"fmt"
	osexec "os/exec"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"
)

// run runs the cluster's program with standard input. It returns standard output and error together.
func run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := osexec.CommandContext(ctx, cluster.Command, args...)
	cmd.Stdin = bytes.NewBufferString(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("cluster %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// kubectl runs the cluster's kubectl as administrator; a failure ends the test.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), stdin, append([]string{"kubectl"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies manifests, as a cluster admin does.
func apply(t *testing.T, manifests string) {
	t.Helper()
	kubectl(t, manifests, "apply", "-f", "-")
}

// field returns a field of an object by JSONPath, and "" if the object does not exist.
func field(ctx context.Context, path string, object ...string) (string, error) {
	return run(ctx, "", append([]string{"kubectl", "get", "--ignore-not-found", "-o", "jsonpath=" + path}, object...)...)
}
