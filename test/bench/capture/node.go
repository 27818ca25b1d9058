package capture

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// nodeEnded is the report of a node.
type nodeEnded struct {
	CPU time.Duration `json:"cpu"`
}

// runNode is process 1 of a simulated node. The arguments are the cgroup of the Pod, the CPU of the agent, and the
// command of the agent. It ends with the agent and reports its CPU time.
func runNode(args []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("read CPU: %w", err)
	}
	ctx := context.Background() // killing process 1 kills all others
	hold := host.RoleCommand(ctx, "role-hold", -1, []*os.File{os.NewFile(host.NetnsFD, "netns")})
	up, err := hold.StdoutPipe()
	if err != nil {
		return err
	}
	if err := hold.Start(); err != nil {
		return fmt.Errorf("start target: %w", err)
	}
	if _, err := up.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("start target: %w", err)
	}
	if err := os.WriteFile(filepath.Join(args[0], "cgroup.procs"), []byte(strconv.Itoa(hold.Process.Pid)), 0); err != nil {
		return fmt.Errorf("put target into its cgroup: %w", err)
	}
	agent := host.RoleCommand(ctx, "role-exec", cpu, nil, args[2:]...)
	agent.Stderr = os.Stderr
	if err := agent.Run(); err != nil {
		return fmt.Errorf("run %s: %w", args[2], err)
	}
	host.Kill(hold) // so that bench can remove its cgroup
	return json.NewEncoder(os.Stdout).Encode(nodeEnded{CPU: host.Used(agent)})
}

// runHold is the process of the target Pod. It sleeps in the network namespace until it is killed. Frames of several flows reach
// its socket, which it never reads.
func runHold([]string) error {
	if err := host.Enter(host.NetnsFD); err != nil {
		return err
	}
	socket, err := ListenFlood(context.Background())
	if err != nil {
		return err
	}
	defer socket.Close()
	fmt.Println("up")
	for {
		time.Sleep(time.Hour)
	}
}

// ListenFlood opens a socket that frames of several flows reach.
func ListenFlood(ctx context.Context) (net.PacketConn, error) {
	return (&net.ListenConfig{}).ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", figures.FloodPort))
}

// nodeProcess returns the PID of the program that a node runs.
func nodeProcess(node *exec.Cmd, program string) (pid int, ok bool) {
	const longest = 15 // characters of a name in /proc
	name := filepath.Base(program)
	name = name[:min(len(name), longest)]
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		head, rest, _ := strings.Cut(string(b), ") ")
		_, comm, _ := strings.Cut(head, " (")
		if f := strings.Fields(rest); len(f) > 1 && comm == name && f[1] == strconv.Itoa(node.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, err == nil
		}
	}
	return 0, false
}
