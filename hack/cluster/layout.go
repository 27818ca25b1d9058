package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Names of the cluster in the kernel. `down` finds everything by these names, so that it also works after `up` was
// killed.
const (
	// clusterName is the cgroup of all processes of a cluster, and the prefix of every network namespace; see
	// layout.name.
	clusterName = "sonde-cluster"
	netnsDir    = "/run/netns"
)

// Addresses of the cluster's network. It has no uplink and exists only inside the cluster's own network namespaces.
const (
	controlPlaneIP = "10.99.0.10"
	networkBits    = 24
	gatewayIP      = "10.99.0.1"
	podNetwork     = "10.244.0.0/16"
	serviceNetwork = "10.96.0.0/16"
	kubernetesIP   = "10.96.0.1"
	dnsIP          = "10.96.0.10"
	apiPort        = 6443
	registryPort   = 5000
)

// Ports of the loopback on which the host reaches the cluster, see layout.apiForward.
const (
	apiForwardPort      = 16443
	registryForwardPort = 15000
)

// maxInstance is the highest number of a cluster. The ports of ten clusters do not collide with well-known services.
const maxInstance = 9

const maxNodes = 3

// nodeName is the Kubernetes name of node i, counted from 1.
func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

// nodeIP is the address of node i in the cluster's network.
func nodeIP(i int) string { return fmt.Sprintf("10.99.0.%d", 20+i) }

// podCIDR is the network from which the Pods of node i get their addresses.
func podCIDR(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// layout gives the paths of the cluster's files and its names in the kernel. All files are in one directory of the
// user's cache: `store` and `bin` outlive the cluster, `run` does not.
type layout struct {
	base string
	// instance numbers the clusters of one machine. Each has its own names, ports and `run` directory; all share the
	// built binaries. Inside they are equal, because the networks of two clusters never meet.
	instance int
}

// name is the cluster's cgroup. Instance 0 has no number.
func (l layout) name() string { return clusterName + l.suffix() }

func (l layout) suffix() string {
	if l.instance == 0 {
		return ""
	}
	return strconv.Itoa(l.instance)
}

// netnsPrefix starts the name of every network namespace of the cluster.
func (l layout) netnsPrefix() string { return l.name() + "-" }

// netns is the path of the network namespace of one part of the cluster: "switch", "control-plane" or the name of a
// node.
func (l layout) netns(part string) string { return filepath.Join(netnsDir, l.netnsPrefix()+part) }

// apiForward is the address of the API server on the host's loopback.
func (l layout) apiForward() string { return loopback(apiForwardPort + l.instance) }

// registryForward is the address of the image registry on the host's loopback.
func (l layout) registryForward() string { return loopback(registryForwardPort + l.instance) }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// defaultBase is the cluster's directory in the user's cache.
func defaultBase() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(cache, "sonde", "cluster"), nil
}

func (l layout) store() string      { return filepath.Join(l.base, "store") }
func (l layout) bin() string        { return filepath.Join(l.base, "bin") }
func (l layout) run() string        { return filepath.Join(l.base, "run"+l.suffix()) }
func (l layout) buildLock() string  { return filepath.Join(l.base, "build.lock") }
func (l layout) runLock() string    { return l.run() + ".lock" }
func (l layout) state() string      { return filepath.Join(l.run(), "cluster.json") }
func (l layout) kubeconfig() string { return filepath.Join(l.run(), "kubeconfig") }

// insideKubeconfig is the administrator's kubeconfig with the API server's address in the cluster's network.
func (l layout) insideKubeconfig() string { return filepath.Join(l.pki(), "admin.kubeconfig") }
func (l layout) kubectlCache() string     { return filepath.Join(l.run(), "kubectl-cache") }
func (l layout) pki() string              { return filepath.Join(l.run(), "pki") }
func (l layout) etc() string              { return filepath.Join(l.run(), "etc") }
func (l layout) etcd() string             { return filepath.Join(l.run(), "etcd") }
func (l layout) registry() string         { return filepath.Join(l.run(), "registry") }

// volumes holds a directory for each claim. A node has it at the same path, because all of base is shared with nodes.
func (l layout) volumes() string            { return filepath.Join(l.run(), "volumes") }
func (l layout) logs() string               { return filepath.Join(l.run(), "log") }
func (l layout) log(name string) string     { return filepath.Join(l.logs(), name+".log") }
func (l layout) auditLog() string           { return filepath.Join(l.logs(), "audit.jsonl") }
func (l layout) node(name string) string    { return filepath.Join(l.run(), "nodes", name) }
func (l layout) nodePID(name string) string { return filepath.Join(l.node(name), "pid") }

// makeRun creates the directories of a new cluster. Only their owner may read them, because they hold the cluster's
// keys.
func (l layout) makeRun() error {
	for _, d := range []string{l.run(), l.pki(), l.etc(), l.etcd(), l.registry(), l.volumes(), l.logs()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the cluster's directory: %w", err)
		}
	}
	return nil
}
