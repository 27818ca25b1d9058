package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// Patience with each step of a cluster's start; a loaded two-core machine needs
// a tenth of it.
const (
	apiPatience     = 2 * time.Minute
	nodePatience    = 2 * time.Minute
	dnsPatience     = 2 * time.Minute
	registryTimeout = 30 * time.Second
)

// up is one run of `cluster up`.
type up struct {
	spawner
	*progress
	state
	host
	daemons []*daemon
}

// runUp brings a cluster up, or finds that it is.
func runUp(ctx context.Context, l layout, p *progress, wanted shape) error {
	if wanted.Nodes < 1 || wanted.Nodes > maxNodes {
		return fmt.Errorf("--nodes %d: a cluster has 1 to %d nodes", wanted.Nodes, maxNodes)
	}
	m := realMachine(ctx)
	if err := checkRoot(m); err != nil {
		return err
	}
	lock, err := takeLock(l.runLock(), p)
	if err != nil {
		return err
	}
	defer lock.Close()
	done, err := alreadyUp(ctx, l, p, wanted)
	if err != nil || done {
		return err
	}
	u := up{spawner: spawner{layout: l, lock: lock}, progress: p}
	if u.host, err = preflight(m, l, wanted); err != nil {
		return err
	}
	u.shape = wanted
	if u.Binaries, err = buildBinaries(ctx, l, p, wanted.Flavour); err != nil {
		return err
	}
	if err := u.start(ctx); err != nil {
		return fmt.Errorf("%w\nlogs: %s; `cluster down` removes what was started", err, l.logs())
	}
	p.step("cluster is up: %d nodes; KUBECONFIG=%s", wanted.Nodes, l.kubeconfig())
	return nil
}

// alreadyUp reports whether the wanted cluster runs. It removes the remains of a cluster that did not finish starting,
// or whose machine was restarted.
func alreadyUp(ctx context.Context, l layout, p *progress, wanted shape) (bool, error) {
	s, err := completeState(l)
	if err == nil {
		client, clientErr := adminAPI(l)
		if clientErr == nil && client.ready(ctx) == nil {
			if err := s.differs(wanted); err != nil {
				return false, err
			}
			p.step("%s with %d nodes is already up; KUBECONFIG=%s", s.Flavour, s.Nodes, l.kubeconfig())
			return true, nil
		}
		p.step("the cluster does not answer; removing it")
	}
	return false, removeCluster(l, p)
}

// start starts everything in the order of dependencies.
func (u *up) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		u.prepare, u.startControlPlane, u.pushImages, u.startNodes, u.awaitAPI, u.addConstraints, u.startControllers, u.awaitNodes, u.awaitDNS, u.awaitConstraints,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	u.Complete = true
	return u.write(u.layout)
}

// prepare creates directories, keys and the network.
func (u *up) prepare(context.Context) error {
	if err := u.makeRun(); err != nil {
		return err
	}
	if err := u.write(u.layout); err != nil {
		return err
	}
	if err := writePKI(u.layout, u.Nodes); err != nil {
		return fmt.Errorf("create the cluster's keys: %w", err)
	}
	if err := makeNetwork(u.layout, u.Nodes); err != nil {
		return err
	}
	u.step("keys and network created")
	return nil
}

func (u *up) startControlPlane(context.Context) error {
	store, err := u.controlPlane().startStore()
	if err != nil {
		return err
	}
	gateway, err := startGateway(u.spawner)
	u.daemons = append(append(u.daemons, store...), gateway)
	return err
}

func (u *up) controlPlane() controlPlane { return controlPlane{spawner: u.spawner, bin: u.Binaries} }

// pushImages fills the registry while the API server starts.
func (u *up) pushImages(ctx context.Context) error {
	specs, err := baseImages(ctx, u.Binaries, u.busybox)
	if err != nil {
		return err
	}
	ping := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+u.registryForward()+"/v2/", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if err := u.await(ctx, registryTimeout, "the image registry", ping); err != nil {
		return err
	}
	for image, spec := range specs {
		img, err := spec.build()
		if err != nil {
			return fmt.Errorf("build the image %s: %w", image, err)
		}
		tag, err := name.NewTag(image)
		if err != nil {
			return fmt.Errorf("name the image %s: %w", image, err)
		}
		if err := push(ctx, u.layout, tag, img); err != nil {
			return err
		}
	}
	u.step("base images in the registry")
	return nil
}

// startNodes starts the nodes. Their containerd starts while the API server does.
func (u *up) startNodes(ctx context.Context) error {
	for i := 1; i <= u.Nodes; i++ {
		c := nodeConfig{
			Name: nodeName(i), IP: nodeIP(i), PodCIDR: podCIDR(i),
			Base: u.base, Instance: u.instance, Binaries: u.Binaries, Runc: u.runc, CNIPlugins: cniPlugins,
		}
		if err := writeNode(c); err != nil {
			return err
		}
		if u.NodeDisk > 0 {
			if err := makeNodeDisk(ctx, u.layout, c.Name, u.NodeDisk); err != nil {
				return err
			}
		}
		d, err := startNode(u.spawner, c.Name)
		if err != nil {
			return err
		}
		u.daemons = append(u.daemons, d)
	}
	return nil
}

func (u *up) awaitAPI(ctx context.Context) error {
	client, err := adminAPI(u.layout)
	if err != nil {
		return err
	}
	if err := u.await(ctx, apiPatience, "the API server", client.ready); err != nil {
		return err
	}
	u.step("API server ready")
	return nil
}

func (u *up) startControllers(ctx context.Context) error {
	controllers, err := u.controlPlane().startControllers()
	if err != nil {
		return err
	}
	u.daemons = append(u.daemons, controllers...)
	if err := apply(ctx, u.layout, u.state, "base.yaml", nil); err != nil {
		return err
	}
	provisioner, err := u.controlPlane().startProvisioner()
	if err != nil {
		return err
	}
	u.daemons = append(u.daemons, provisioner)
	return apply(ctx, u.layout, u.state, "coredns.yaml", map[string]any{"Image": coreDNSImage, "DNS": dnsIP})
}

// awaitNodes waits for all nodes.
func (u *up) awaitNodes(ctx context.Context) error {
	for i := 1; i <= u.Nodes; i++ {
		if err := u.awaitNode(ctx, nodeConfig{Name: nodeName(i), PodCIDR: podCIDR(i)}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// awaitNode waits until a node reports Ready after the point in time since, and writes its Pod network into its Node
// object.
func (u *up) awaitNode(ctx context.Context, c nodeConfig, since time.Time) error {
	client, err := adminAPI(u.layout)
	if err != nil {
		return err
	}
	path := "/api/v1/nodes/" + c.Name
	if err := u.await(ctx, nodePatience, "node "+c.Name, func(ctx context.Context) error { return nodeReady(ctx, client, path, since) }); err != nil {
		return err
	}
	if err := client.patch(ctx, path, map[string]any{"spec": map[string]any{"podCIDR": c.PodCIDR}}); err != nil {
		return fmt.Errorf("set the Pod network of node %s: %w", c.Name, err)
	}
	u.step("node %s ready", c.Name)
	return nil
}

// nodeReady returns nil if the Node at path has reported Ready after the point in time since, otherwise the reason why
// not.
func nodeReady(ctx context.Context, client *api, path string, since time.Time) error {
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Message string
				LastHeartbeatTime     time.Time
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := client.get(ctx, path, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != "Ready":
		case c.LastHeartbeatTime.Before(since):
			return fmt.Errorf("it has not reported since %s", c.LastHeartbeatTime)
		case c.Status != "True":
			return errors.New(c.Message)
		default:
			return nil
		}
	}
	return errors.New("no condition Ready yet")
}

// awaitDNS waits for what the first Pod needs: DNS, and its service account.
func (u *up) awaitDNS(ctx context.Context) error {
	client, err := adminAPI(u.layout)
	if err != nil {
		return err
	}
	err = u.await(ctx, dnsPatience, "CoreDNS", func(ctx context.Context) error {
		var deployment struct {
			Status struct {
				AvailableReplicas int `json:"availableReplicas"`
			} `json:"status"`
		}
		if err := client.get(ctx, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", &deployment); err != nil {
			return err
		}
		if deployment.Status.AvailableReplicas == 0 {
			return errors.New("no Pod of it is available; see `cluster kubectl describe pods -n kube-system`")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return u.await(ctx, apiPatience, "the default service account", func(ctx context.Context) error {
		return client.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}

// await polls until check returns nil. It fails with the last error of check when one of the cluster's programs ends or
// the time is over.
func (u *up) await(ctx context.Context, patience time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready after %s", patience))
	defer cancel()
	stop := u.during(silence, func() string { return "waiting for " + what })
	defer stop()
	last := errors.New("no answer yet")
	var dead error
	waitFor(ctx, func() bool {
		if dead = failed(u.daemons); dead != nil {
			return true
		}
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil
	})
	if dead != nil {
		return dead
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), last)
	}
	return nil
}
