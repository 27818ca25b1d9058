//go:build e2e

// Package e2e tests Sonde on a real cluster with real Pods and real packets. hack/e2e.sh starts it.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

// What the environment tells (see hack/e2e.sh), and what the tests on a cluster share.
var (
	auditLog   = os.Getenv("SONDE_AUDIT_LOG") // the API server's
	installCmd = os.Getenv("SONDE_INSTALL")   // hack/install.sh
	plugin     = cluster.Plugin
	clusterCmd = cluster.Command
	config     *rest.Config
	admin      client.Client

	namespace, eventually                       = cluster.Namespace, cluster.Eventually
	deployment, podSpec, pod, readyPods, scale  = cluster.Deployment, cluster.PodSpec, cluster.Pod, cluster.ReadyPods, cluster.Scale
	send, udpAddr                               = cluster.Send, cluster.UDPAddr
	capture, awaitCapturing, awaitFinal, stop   = cluster.Capture, cluster.AwaitCapturing, cluster.AwaitFinal, cluster.Stop
	trace                                       = cluster.Trace
	download, read, entry, nothingLeft          = cluster.Download, cluster.Read, cluster.Entry, cluster.NothingLeft
	as, bind                                    = cluster.As, cluster.Bind
	printed                                     = cluster.Logs
	onNode, nodeNames, agentProcesses, noAgents = cluster.OnNode, cluster.NodeNames, cluster.AgentProcesses, cluster.NoAgents
	gone, deleteNow                             = cluster.Gone, cluster.DeleteNow
)

const (
	operatorNamespace = cluster.OperatorNamespace
	udpPort           = cluster.UDPPort
)

func TestMain(m *testing.M) {
	if err := cluster.Setup("SONDE_AUDIT_LOG", "SONDE_INSTALL"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	config, admin = cluster.Config, cluster.Admin
	os.Exit(m.Run())
}
