package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/agents/keeper"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// settings of a role, as JSON on its standard input.
type settings struct {
	// Results, Control and TLS are the volumes of a keeper. The writer writes to Results.
	Results string `json:"results,omitempty"`
	Control string `json:"control,omitempty"`
	TLS     string `json:"tls,omitempty"`
	// Pods that the stand-in serves, and its key pair and those of the keepers, in PEM.
	Pods     []pod             `json:"pods,omitempty"`
	Identity []byte            `json:"identity,omitempty"`
	Pairs    map[string][]byte `json:"pairs,omitempty"`
	// Files, Rate of each in bytes per second and Time of the writer.
	Files int           `json:"files,omitempty"`
	Rate  int           `json:"rate,omitempty"`
	Time  time.Duration `json:"time,omitempty"`
}

// pod is a captured Pod, and the address of its keeper.
type pod struct {
	Name   string `json:"name"`
	UID    string `json:"uid"`
	Keeper string `json:"keeper"`
	File   string `json:"file"`
}

// Roles are the roles of this package. Keeper and stand-in print their address and host.Ready when they listen, and end
// when bench kills them.
var Roles = map[string]func(args []string) error{
	"role-live-keeper":  role(runKeeper),
	"role-live-standin": role(runStandIn),
	"role-live-writer":  role(runWriter),
}

func role(run func(context.Context, *settings) error) func([]string) error {
	return func([]string) error {
		runtime.UnlockOSThread()
		var s settings
		if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		return run(context.Background(), &s)
	}
}

// command returns the command of a role.
func command(ctx context.Context, role string, s *settings) (*exec.Cmd, error) {
	input, err := json.Marshal(s)
	cmd := host.RoleCommand(ctx, "role-live-"+role, -1, nil)
	cmd.Stdin = bytes.NewReader(input)
	return cmd, err
}

// listen listens on a free port of this machine.
func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
}

// announce prints the address of a listener, and that it can be used.
func announce(l net.Listener) { fmt.Printf("%s\n%s\n", l.Addr(), host.Ready) }

// runKeeper is a keeper without its confinement, which needs the Pod's.
func runKeeper(ctx context.Context, s *settings) error {
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	return keeper.Run(ctx, &keeper.Config{
		Listen: func(context.Context) (net.Listener, error) { return l, nil },
		TLSDir: s.TLS, ResultsDir: s.Results, ControlDir: s.Control, Retain: time.Hour, Clock: clock.RealClock{},
		Confined: func() error { return nil },
		Restrict: func(string, string) (restriction.InForce, error) {
			announce(l)
			return restriction.InForce{}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
}
