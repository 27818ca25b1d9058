package main

import (
	"fmt"
	"path/filepath"
)

// controlPlane starts the programs of one cluster's control plane.
type controlPlane struct {
	spawner
	bin string
}

func (c controlPlane) launch(program string, args ...string) (*daemon, error) {
	at := place{cgroup: controlPlanePart, netns: c.netns(controlPlanePart)}
	return c.spawn(program, at, append([]string{filepath.Join(c.bin, program)}, args...)...)
}

func (c controlPlane) key(file string) string { return filepath.Join(c.pki(), file) }

// startStore starts etcd and the API server, which may start in parallel.
func (c controlPlane) startStore() ([]*daemon, error) {
	if err := renderFile(c.auditPolicy(), "audit-policy.yaml", nil); err != nil {
		return nil, err
	}
	etcd, err := c.launch("etcd", c.etcdArgs()...)
	if err != nil {
		return nil, err
	}
	api, err := c.startAPIServer()
	if err != nil {
		return nil, err
	}
	return []*daemon{etcd, api}, nil
}

func (c controlPlane) startAPIServer() (*daemon, error) {
	return c.launch(apiServer, c.apiServerArgs()...)
}

// startControllers starts the programs that need a ready API server: before, they may not read their configuration
// there and exit.
func (c controlPlane) startControllers() ([]*daemon, error) {
	kcm, err := c.launch("kube-controller-manager", c.controllerManagerArgs()...)
	if err != nil {
		return nil, err
	}
	scheduler, err := c.launch("kube-scheduler", c.schedulerArgs()...)
	if err != nil {
		return nil, err
	}
	return []*daemon{kcm, scheduler}, nil
}

// startProvisioner starts the program that makes volumes for claims, when it may read claims.
func (c controlPlane) startProvisioner() (*daemon, error) {
	return c.launch("provisioner", "--kubeconfig="+c.key("provisioner.kubeconfig"), "--directory="+c.volumes())
}

func (c controlPlane) auditPolicy() string { return filepath.Join(c.etc(), "audit-policy.yaml") }

func (c controlPlane) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.etcd(),
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		// The data need not survive the machine, so do not wait for a slow disk.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (c controlPlane) apiServerArgs() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--advertise-address=" + controlPlaneIP,
		"--tls-cert-file=" + c.key("apiserver.crt"),
		"--tls-private-key-file=" + c.key("apiserver.key"),
		"--client-ca-file=" + c.key("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.key("sa.pub"),
		"--service-account-signing-key-file=" + c.key("sa.key"),
		"--service-cluster-ip-range=" + serviceNetwork,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false",
		"--kubelet-client-certificate=" + c.key("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + c.key("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + c.key("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + c.key("front-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.key("front-proxy.crt"),
		"--proxy-client-key-file=" + c.key("front-proxy.key"),
		// No kube-proxy runs beside the API server, so it calls webhooks and aggregated APIs at their Pods' addresses.
		"--enable-aggregator-routing=true",
		"--audit-policy-file=" + c.auditPolicy(),
		"--audit-log-path=" + c.auditLog(),
		// In MiB. One file for the whole life of a cluster: the default rotates at 100, and tests would lose requests
		// that they count.
		"--audit-log-maxsize=2048",
	}
}

// identity returns the flags with which a controller authenticates itself, and its clients.
func (c controlPlane) identity(name string) []string {
	k := c.key(name + ".kubeconfig")
	return []string{
		"--kubeconfig=" + k, "--authentication-kubeconfig=" + k, "--authorization-kubeconfig=" + k,
		"--leader-elect=false", "--bind-address=127.0.0.1",
		// The defaults of 20 and 30 slow down a small cluster.
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

func (c controlPlane) controllerManagerArgs() []string {
	return append(c.identity("kcm"),
		"--root-ca-file="+c.key("ca.crt"),
		"--service-account-private-key-file="+c.key("sa.key"),
		"--use-service-account-credentials",
		"--cluster-signing-cert-file="+c.key("ca.crt"),
		"--cluster-signing-key-file="+c.key("ca.key"),
		// The default directory would be created on the machine, below /usr.
		"--flex-volume-plugin-dir="+filepath.Join(c.run(), "flex-volumes"),
	)
}

func (c controlPlane) schedulerArgs() []string { return c.identity("scheduler") }
