//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// getRaw asks the API server for a path as a user, with a token of Sonde's, and returns the HTTP status.
func getRaw(ctx context.Context, t *testing.T, user, path, token string) int {
	t.Helper()
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	cs, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	req := cs.RESTClient().Get().AbsPath(path)
	if token != "" {
		req = req.SetHeader("X-Sonde-Token", token)
	}
	var code int
	res := req.Do(ctx).StatusCode(&code)
	var status apierrors.APIStatus
	if err := res.Error(); code == 0 && errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	return code
}
