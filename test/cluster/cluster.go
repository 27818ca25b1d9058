// Package cluster is what tests on a real cluster share: its clients, workloads with numbered packets,
// captures and what is in their files. hack/e2e.sh and hack/olm.sh start such tests.
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

// OperatorNamespace is where the manifests put the operator.
const OperatorNamespace = "sonde-system"

// What the environment tells.
var (
	Plugin         = os.Getenv("SONDE_PLUGIN")    // the built kubectl-sonde
	Command        = os.Getenv("SONDE_CLUSTER")   // the built hack/cluster
	AuditLog       = os.Getenv("SONDE_AUDIT_LOG") // the API server's
	InstallCommand = os.Getenv("SONDE_INSTALL")   // hack/install.sh
	kubeconfig     = os.Getenv("KUBECONFIG")
	workload       = os.Getenv("SONDE_WORKLOAD") // image of the workload
)

// What Setup makes of it.
var (
	Config *rest.Config // the administrator's
	Admin  client.Client
	Scheme = runtime.NewScheme()
)

// Setup makes the clients; the tests' TestMain calls it once. needed are further variables of the environment
// that must be set.
func Setup(needed ...string) error {
	ctrl.SetLogger(logr.Discard()) // the tests say what they see themselves
	for _, name := range append(needed, "SONDE_PLUGIN", "SONDE_CLUSTER", "SONDE_WORKLOAD", "KUBECONFIG") {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start the tests by make test-e2e or make test-olm", name)
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
	Config.WarningHandler = rest.NoWarnings{} // of APIs that a test lists because all are
	if Admin, err = client.New(Config, client.Options{Scheme: Scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}
