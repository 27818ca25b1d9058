// Package cluster holds what tests on a real cluster share: clients, workloads that send numbered packets, captures,
// and readers of their files. hack/e2e.sh and hack/olm.sh run such tests.
package cluster

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// OperatorNamespace is the namespace in which the manifests install the operator.
const OperatorNamespace = "sonde-system"

// Settings from the environment.
var (
	Plugin         = os.Getenv("SONDE_PLUGIN")    // the built kubectl-sonde
	Command        = os.Getenv("SONDE_CLUSTER")   // the built hack/cluster
	AuditLog       = os.Getenv("SONDE_AUDIT_LOG") // the API server's
	InstallCommand = os.Getenv("SONDE_INSTALL")   // hack/install.sh
	kubeconfig     = os.Getenv("KUBECONFIG")
	workload       = os.Getenv("SONDE_WORKLOAD") // image of the workload
)

// Clients that Setup creates.
var (
	Config *rest.Config // for the administrator
	Admin  client.Client
	Scheme = runtime.NewScheme()
)

// Setup creates the clients. The tests' TestMain calls it once. It returns an error if an environment variable is
// missing; needed names additional ones.
func Setup(needed ...string) error {
	ctrl.SetLogger(logr.Discard()) // the tests report themselves
	for _, name := range append(needed, "SONDE_PLUGIN", "SONDE_CLUSTER", "SONDE_WORKLOAD", "KUBECONFIG") {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: run make test-e2e or make test-olm", name)
		}
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(Scheme); err != nil {
			return fmt.Errorf("build scheme: %w", err)
		}
	}
	var err error
	if Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	Config.QPS, Config.Burst = 200, 400
	Config.WarningHandler = rest.NoWarnings{} // some tests list all APIs, and deprecated ones warn
	if Admin, err = client.New(Config, client.Options{Scheme: Scheme}); err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	return nil
}
