//go:build api

// Package api tests how a real API server treats Sonde's kinds: the CRDs' validation rules and the webhooks.
package api

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
)

// The API server of all tests in this package.
var (
	config *rest.Config
	admin  client.Client
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == filterpool.Subcommand {
		os.Exit(filterpool.Child(os.Args[2:]))
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, fmt.Errorf("build scheme: %w", err)
		}
	}
	env := &envtest.Environment{
		CRDDirectoryPaths:        []string{"../../config/crd/bases"},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStopTimeout:  20 * time.Second,
		DownloadBinaryAssets:     false,
		AttachControlPlaneOutput: false,
	}
	// In a network namespace without a default route the API server finds no address by itself.
	env.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1")
	var err error
	if config, err = env.Start(); err != nil {
		return 1, fmt.Errorf("start API server (make test-api sets KUBEBUILDER_ASSETS): %w", err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop API server:", err)
		}
	}()
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, fmt.Errorf("create client: %w", err)
	}
	return m.Run(), nil
}

// namespace creates a namespace for a test.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-", Labels: labels}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), ns) })
	return ns.Name
}
