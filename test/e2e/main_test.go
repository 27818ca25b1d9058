//go:build e2e

// Package e2e tests Sonde on a real cluster with real Pods and real packets. hack/e2e.sh starts it.
package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// What the environment tells (see hack/e2e.sh), and the clients made from it.
var (
	plugin     = os.Getenv("SONDE_PLUGIN")    // the built kubectl-sonde
	clusterCmd = os.Getenv("SONDE_CLUSTER")   // the built hack/cluster
	auditLog   = os.Getenv("SONDE_AUDIT_LOG") // the API server's
	installCmd = os.Getenv("SONDE_INSTALL")   // hack/install.sh
	kubeconfig = os.Getenv("KUBECONFIG")      //
	workload   = os.Getenv("SONDE_WORKLOAD")  // image of the workload
	config     *rest.Config
	admin      client.Client
	scheme     = runtime.NewScheme()
)

// operatorNamespace is where the manifests put the operator.
const operatorNamespace = "sonde-system"

func TestMain(m *testing.M) {
	if err := setup(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func setup() error {
	ctrl.SetLogger(logr.Discard()) // the tests say what they see themselves
	for name, value := range map[string]string{"SONDE_PLUGIN": plugin, "SONDE_CLUSTER": clusterCmd, "SONDE_AUDIT_LOG": auditLog, "SONDE_INSTALL": installCmd, "KUBECONFIG": kubeconfig, "SONDE_WORKLOAD": workload} {
		if value == "" {
			return fmt.Errorf("%s is not set: start the tests by make test-e2e", name)
		}
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build scheme: %w", err)
		}
	}
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// namespace makes one for a test and removes it afterwards.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), ns) })
	return ns.Name
}

// eventually waits until check returns nil, and fails with its last error after the time is over.
func eventually(t *testing.T, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, within, err)
		case <-tick.C:
		}
	}
}
