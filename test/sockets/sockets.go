// Package sockets runs programs with sockets that a test knows, and scores what captures say about the processes of their packets.
package sockets

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/privileged"
)

// echoPort is the port of the peer's echo servers, as in the programs.
const echoPort = "9000"

// ProgramsVar names, in the environment, the directory of the compiled sockets.c on a machine without a compiler. Such a machine has no
// Python and no nft either.
const ProgramsVar = "SONDE_TEST_PROGRAMS"

//go:embed testdata/sockets.c
var source string

// program is the compiled sockets.c of this test binary. All tests share it, because the compiler takes longer than most of them.
var program struct {
	sync.Mutex
	dir   string // made by Run
	built bool
}

// Run runs the tests of a package, six at a time, for its TestMain. In the process of RunGo it runs the Go program.
func Run(m *testing.M) int {
	if os.Getenv(goProgram) != "" {
		_, _ = os.Stderr.WriteString(runGo(os.Args[1:]).Error())
		return 1
	}
	dir, err := os.MkdirTemp("", "sonde-sockets-")
	if err != nil {
		panic(err) // no test can have a temporary folder
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program.dir = dir
	return privileged.RunOverlapping(m, 6)
}

// compile returns the path of the program.
func compile(tb testing.TB) string {
	tb.Helper()
	if dir := os.Getenv(ProgramsVar); dir != "" {
		return filepath.Join(dir, "sockets")
	}
	program.Lock()
	defer program.Unlock()
	path := filepath.Join(program.dir, "sockets")
	if program.built {
		return path
	}
	gcc := exec.CommandContext(tb.Context(), "gcc", "-O2", "-pthread", "-Wall", "-Werror", "-x", "c", "-o", path, "-")
	gcc.Stdin = strings.NewReader(source)
	if out, err := gcc.CombinedOutput(); err != nil {
		tb.Fatalf("build the sockets (make deps installs gcc): %v\n%s", err, out)
	}
	program.built = true
	return path
}

// World is a Pod of programs with sockets that the test knows, and a peer that talks to them. It has a cgroup of its own, so that
// programs of other tests change nothing for a capture of its processes.
type World struct {
	Target, Peer *os.File // their network namespaces
	Program      string   // the compiled sockets.c, whose first argument is a mode
	// PIDs are the processes that have the socket of a port, as the programs have said.
	PIDs map[uint16][]uint32
	// Either are ports whose sockets several processes may use: each of them is right.
	Either []uint16
	// Answers are ports whose connections change hands: only packets with data that the target sends are its process's for sure.
	Answers []uint16

	tb  testing.TB
	pod *podCgroup
}

// New waits until no test of another package disturbs scans of the node's files.
func New(tb testing.TB) *World {
	tb.Helper()
	privileged.AloneWithScans(tb)
	target, peer := podnet.New(tb)
	w := &World{tb: tb, Target: target, Peer: peer, Program: compile(tb), PIDs: map[uint16][]uint32{}, pod: newPodCgroup(tb)}
	for _, ip := range []string{podnet.PeerIP, podnet.PeerV6} {
		w.serveEcho(net.JoinHostPort(ip, echoPort))
	}
	w.pod.sandbox = w.Run(0, w.Program, "sandbox").Process.Pid
	return w
}

// serveEcho answers everything at an address of the peer.
func (w *World) serveEcho(addr string) {
	go echoUDP(podnet.UDP(w.tb, w.Peer, "udp", addr))
	var l net.Listener
	err := links.InNetNS(int(w.Peer.Fd()), func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(w.tb.Context(), "tcp", addr)
		return err
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() { _ = l.Close() })
	go echoTCP(l)
}

// Run starts a program in the Pod, and returns when its sockets are open. The program gets the addresses and the port as its last
// arguments, and prints lines "PID PORT", then "ready".
func (w *World) Run(port int, name string, args ...string) *exec.Cmd {
	w.tb.Helper()
	return w.RunIn(w.pod.dir, port, name, args...)
}

// RunGo is Run for the Go program: mode all, or spawn.
func (w *World) RunGo(port int, mode string) *exec.Cmd {
	w.tb.Helper()
	return w.Run(port, os.Args[0], mode)
}

// RunIn is Run in another cgroup.
func (w *World) RunIn(cgroup string, port int, name string, args ...string) *exec.Cmd {
	w.tb.Helper()
	args = append([]string{"-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(cgroup, "cgroup.procs"), name}, args...)
	return w.start(port, "sh", args)
}

// RunOutside is Run in the test's own cgroup, for captures that take each process of the node for one of the Pod.
func (w *World) RunOutside(port int, name string, args ...string) *exec.Cmd {
	w.tb.Helper()
	w.tb.Cleanup(w.killChildren)
	return w.start(port, name, args)
}

// killChildren ends the children that programs have printed: those in the Pod's cgroup end with it.
func (w *World) killChildren() {
	for _, pids := range w.PIDs {
		for _, pid := range pids {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe == w.Program {
				p, _ := os.FindProcess(int(pid)) // never fails on Linux
				_ = p.Kill()
			}
		}
	}
}

func (w *World) start(port int, name string, args []string) *exec.Cmd {
	w.tb.Helper()
	args = append(args, podnet.TargetIP, podnet.PeerIP, podnet.TargetV6, podnet.PeerV6, strconv.Itoa(port))
	cmd := exec.CommandContext(w.tb.Context(), name, args...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), goProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.tb.Fatal(err)
	}
	if err := links.InNetNS(int(w.Target.Fd()), cmd.Start); err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := w.read(out); err != nil {
		w.tb.Fatalf("%q: %v", cmd.Args, err)
	}
	return cmd
}

// read reads what a program says, until it is ready.
func (w *World) read(out io.Reader) error {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			return nil
		}
		var pid, port int
		if _, err := fmt.Sscan(lines.Text(), &pid, &port); err != nil {
			return fmt.Errorf("it says %q", lines.Text())
		}
		w.PIDs[uint16(port)] = append(w.PIDs[uint16(port)], uint32(pid))
	}
	return errors.New("it ended")
}

// Ask sends messages to a port of the target over one connection, and awaits an answer to each.
func (w *World) Ask(network, ip string, port, messages int) {
	w.tb.Helper()
	w.AskFrom(w.Peer, network, ip, port, messages)
}

// AskFrom is Ask from a namespace.
func (w *World) AskFrom(ns *os.File, network, ip string, port, messages int) {
	w.tb.Helper()
	var c net.Conn
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		c, err = (&net.Dialer{}).DialContext(w.tb.Context(), network, net.JoinHostPort(ip, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, 100)
	for range messages {
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, err := c.Write([]byte("a question of some bytes"))
		if err == nil {
			_, err = c.Read(b)
		}
		if err != nil {
			w.tb.Fatalf("ask port %d: %v", port, err)
		}
	}
}
