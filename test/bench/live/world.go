package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// world has the processes of one measurement: keepers, and the stand-in for API server and manager.
type world struct {
	b     *host.Env
	dir   string
	tls   string // the keepers' key material
	pairs map[string][]byte
	pods  []pod
	ended []func()
}

// newWorld makes the key material.
func newWorld(b *host.Env) (*world, error) {
	dir, err := os.MkdirTemp(b.Memory, "live")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	w := &world{b: b, dir: dir, tls: filepath.Join(dir, "tls")}
	w.ended = append(w.ended, func() { _ = os.RemoveAll(dir) })
	if w.pairs, err = keeperapi.GeneratePairs(time.Now(), time.Hour); err == nil {
		err = os.Mkdir(w.tls, 0o755)
	}
	for name, pem := range w.pairs {
		err = errors.Join(err, os.WriteFile(filepath.Join(w.tls, name), pem, 0o600))
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close ends all processes, the last one first.
func (w *world) close() {
	for _, end := range slices.Backward(w.ended) {
		end()
	}
}

// start starts a role, and returns the address that it prints.
func (w *world) start(ctx context.Context, role string, s *settings) (string, error) {
	cmd, err := command(ctx, role, s)
	if err != nil {
		return "", err
	}
	said := &host.Output{}
	if err := host.StartReady(ctx, cmd, said); err != nil {
		return "", err
	}
	w.ended = append(w.ended, func() { host.Kill(cmd) })
	address, _, _ := strings.Cut(said.String(), "\n")
	return address, nil
}

// keep starts the keeper of two volumes.
func (w *world) keep(ctx context.Context, results, control string) (address string, err error) {
	return w.start(ctx, "keeper", &settings{Results: results, Control: control, TLS: w.tls})
}

// follow returns the command of the plugin that follows the capture of all Pods, through a stand-in that it starts.
func (w *world) follow(ctx context.Context, plugin string, args ...string) (*exec.Cmd, error) {
	id, err := tunnel.NewIdentity()
	if err != nil {
		return nil, err
	}
	pem, err := id.MarshalPEM()
	if err != nil {
		return nil, err
	}
	address, err := w.start(ctx, "standin", &settings{Pods: w.pods, Identity: pem, Pairs: w.pairs})
	if err != nil {
		return nil, err
	}
	cmd := host.RoleCommand(ctx, "role-exec", -1, nil, append([]string{
		plugin, "follow", captureName, "--namespace", namespace, "--server", "https://" + address, "--insecure-skip-tls-verify",
	}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(w.dir, "none"))
	return cmd, nil
}
