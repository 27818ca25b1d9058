package intercept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// stowawayHeap and carrierHeap are the bytes of GOMEMLIMIT in the Deployment and the Jobs (internal/agentjob).
const (
	stowawayHeap = 192 << 20
	carrierHeap  = 144 << 20
)

// world has the processes of one measurement. The cluster is in the target's namespace and the developer's machine in
// the sender's. bench itself is the manager.
type world struct {
	b         *host.Env
	processes []*process
	stowaway  tunnel.PublicKey
	manager   *tunnel.Identity
}

// process of a role or of another program.
type process struct {
	name string // in the results; empty if it is not measured
	cmd  *exec.Cmd
	said host.Output
}

func (w *world) close() {
	for _, p := range w.processes {
		host.Kill(p.cmd)
	}
}

// command returns the command of a role.
func command(ctx context.Context, namespace *os.File, role string, s *settings) (*exec.Cmd, error) {
	input, err := json.Marshal(s)
	cmd := host.InsideCommand(ctx, namespace, "/proc/self/exe", "role-intercept-"+role, "-1")
	cmd.Stdin = bytes.NewReader(input)
	return cmd, err
}

// run starts a role and waits until it is ready.
func (w *world) run(ctx context.Context, name string, namespace *os.File, role string, s *settings, environment ...string) (*process, error) {
	cmd, err := command(ctx, namespace, role, s)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), environment...)
	return w.start(ctx, name, cmd)
}

// start starts a program and waits until it is ready.
func (w *world) start(ctx context.Context, name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd}
	if err := host.StartReady(ctx, cmd, &p.said); err != nil {
		return nil, err
	}
	w.processes = append(w.processes, p)
	return p, nil
}

// times returns the CPU times of the measured processes.
func (w *world) times() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, p := range w.processes {
		if p.name != "" {
			all[p.name] = host.ProcessTime(p.cmd.Process.Pid)
		}
	}
	return all
}

func newIdentity() (*tunnel.Identity, []byte, error) {
	id, err := tunnel.NewIdentity()
	if err != nil {
		return nil, nil, err
	}
	pem, err := id.MarshalPEM()
	return id, pem, err
}

// startStowaway starts Stowaway with a key of its own and one of the manager.
func (w *world) startStowaway(ctx context.Context) (*process, error) {
	own, pem, err := newIdentity()
	if err != nil {
		return nil, err
	}
	if w.manager, err = tunnel.NewIdentity(); err != nil {
		return nil, err
	}
	w.stowaway = own.Key
	return w.run(ctx, figures.ProcessStowaway, w.b.Net.Target, "stowaway", &settings{Identity: pem, Peer: w.manager.Key}, fmt.Sprintf("GOMEMLIMIT=%d", stowawayHeap))
}

// intercept starts a whole intercept of the Pod. match may be nil, as in tunnel.Route. The caller closes the manager.
func (w *world) intercept(ctx context.Context, match *httpmatch.Match, throughAPIServer bool) (*manager, error) {
	if _, err := w.startStowaway(ctx); err != nil {
		return nil, err
	}
	carrier, carrierPEM, err1 := newIdentity()
	client, clientPEM, err2 := newIdentity()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	m, err := newManager(ctx, w.dial, w.manager, w.stowaway)
	if err != nil {
		return nil, err
	}
	err = m.send(ctx, carrier.Key, route(routeID, client.Key, match))
	start := func(name string, namespace *os.File, role string, s *settings, environment ...string) {
		if err == nil {
			_, err = w.run(ctx, name, namespace, role, s, environment...)
		}
	}
	address := stowawayURL
	if throughAPIServer {
		address = "https://" + net.JoinHostPort(host.TargetIP, apiServerPort)
		start(figures.ProcessAPIServer, w.b.Net.Target, "apiserver", &settings{Identity: clientPEM})
	}
	start(figures.ProcessClient, w.b.Net.Sender, "client", &settings{Identity: clientPEM, Peer: w.stowaway, Address: address})
	start(figures.ProcessCarrier, w.b.Net.Target, "carrier", &settings{Identity: carrierPEM, Peer: w.stowaway}, fmt.Sprintf("GOMEMLIMIT=%d", carrierHeap))
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// dial connects from the cluster.
func (w *world) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = host.InNamespace(int(w.b.Net.Target.Fd()), func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}
