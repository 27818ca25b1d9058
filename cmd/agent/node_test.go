package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/numbered"
	"github.com/sonde-operator/sonde/test/privileged"
)

// Environment variables for the tests inside the node.
const (
	agentVariable  = "SONDE_TEST_AGENT"
	cgroupVariable = "SONDE_TEST_CGROUP"
)

// testTimeout bounds each wait. In an emulated machine (hack/vm) beside others the kernel takes half a minute to verify the
// programs of three traces.
const testTimeout = 2 * time.Minute

// TestOnNode runs the agent's binary in all of its roles on a simulated node. The node has a process namespace, in
// which the test is process 1, a network namespace, and a cgroup for target Pods.
func TestOnNode(t *testing.T) {
	if os.Getenv(roleVariable) == roleNode {
		for name, test := range onNode {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(newPod(t)) })
		}
		return
	}
	runOnNode(t)
}

// runOnNode runs the test again as process 1 of a node.
func runOnNode(t *testing.T) {
	t.Helper()
	privileged.Need(t)
	node := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v="+strconv.FormatBool(testing.Verbose()))
	node.Env = append(os.Environ(), roleVariable+"="+roleNode, agentVariable+"="+buildAgent(t), cgroupVariable+"="+nodeCgroup(t))
	node.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	out, err := node.CombinedOutput() // its end also ends all other processes in its namespace
	if err != nil {
		t.Errorf("on the node: %v", err)
	}
	t.Logf("%s", out)
}

func buildAgent(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(agentVariable); path != "" { // where there is no compiler, as in hack/vm
		return path
	}
	path := filepath.Join(openDir(t), "agent")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// nodeCgroup makes a cgroup of version 2, or else in the pids hierarchy of version 1. It removes the cgroup and
// everything below when the test is over.
func nodeCgroup(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	for _, v1 := range []string{"unified", "pids"} {
		if _, err := os.Stat(filepath.Join(root, v1, "cgroup.procs")); err == nil {
			root = filepath.Join(root, v1)
			break
		}
	}
	base := filepath.Join(root, "sonde-agent-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pattern := range []string{"*/*/*", "*/*", "*", ""} {
			found, _ := filepath.Glob(filepath.Join(base, pattern))
			for _, dir := range found {
				if info, err := os.Stat(dir); err == nil && info.IsDir() {
					_ = os.Remove(dir)
				}
			}
		}
		if _, err := os.Stat(base); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("cgroup %s was not removed", base)
		}
	})
	return base
}

// pod is a target with the agents around it.
type pod struct {
	t                *testing.T
	uid              string
	results, control string
	config, message  string
	port             string
	pairs            map[string][]byte
	client           *keeperapi.Client
	target, probe    *exec.Cmd
	keeper           *exec.Cmd
	send             io.Writer
	said             *bufio.Scanner
}

var lastPod atomic.Int32

// newPod makes the volumes of an agent's Pod; nothing runs yet.
func newPod(t *testing.T) *pod {
	t.Helper()
	n := lastPod.Add(1)
	dir := openDir(t)
	p := &pod{
		t: t, uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), port: fmt.Sprintf("127.0.0.1:%d", 8000+n),
		results: filepath.Join(dir, "results"), control: filepath.Join(dir, "control"),
		config: filepath.Join(dir, captureconfig.Key), message: filepath.Join(dir, "termination-log"),
	}
	pairs, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p.pairs = pairs
	if p.client, err = keeperapi.NewClient(pairs[captureconfig.SecretServerCert], pairs[captureconfig.SecretClientCert], pairs[captureconfig.SecretClientKey]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	for _, d := range []string{p.results, p.control} {
		if err := errors.Join(os.Mkdir(d, 0o777), os.Chmod(d, 0o777)); err != nil { // as an emptyDir is
			t.Fatal(err)
		}
	}
	text, err := captureconfig.Config{
		UID: "uid-1", Kind: "PacketCapture", Namespace: "hub", Name: "web", JobID: "ab12", Requester: "alice", Target: "Deployment/web",
		TargetNamespace: "shop", SnapLength: 262144, MaxBytes: 1 << 28, RingBytes: 1 << 21,
		Interfaces: []string{"lo"}, // a target has no other; unnamed, that would make its result incomplete
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.config, text)
	put(t, p.message, "")
	return p
}

// openDir makes a directory that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start starts a program and ends it with the test.
func (p *pod) start(cmd *exec.Cmd) *exec.Cmd {
	p.t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("%v:\n%s", cmd.Args, log.String())
		}
	})
	return cmd
}

// startTarget starts the target Pod's process, in the node's network namespace or in one of its own.
func (p *pod) startTarget(cloneflags uintptr) {
	p.t.Helper()
	container := strings.Repeat("0", 52) + p.uid[24:] // 64 hexadecimal digits
	cgroup := filepath.Join(os.Getenv(cgroupVariable), "kubepods", "pod"+p.uid, container)
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+roleTarget)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: cloneflags}
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.target, p.send, p.said = p.start(cmd), in, bufio.NewScanner(out)
	p.await("up")
	put(p.t, filepath.Join(cgroup, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
}

func (p *pod) await(word string) {
	p.t.Helper()
	if !p.said.Scan() || p.said.Text() != word {
		p.t.Fatalf("the target says %q, %v; want %q", p.said.Text(), p.said.Err(), word)
	}
}

// sends makes the target send n packets and returns when they have been sent.
func (p *pod) sends(n int) {
	p.t.Helper()
	fmt.Fprintln(p.send, n)
	p.await("sent")
}

func (p *pod) startProbe(more ...string) {
	p.t.Helper()
	p.probe = p.start(exec.Command(os.Getenv(agentVariable), append([]string{
		"probe", "--config", p.config, "--capture-uid", "uid-1", "--pod-uid", p.uid, "--pod-name", "web-1", "--node", "n1",
		"--results", p.results, "--control", p.control, "--termination-log", p.message,
	}, more...)...))
}

// keeperCommand is the keeper's program and its arguments.
func (p *pod) keeperCommand() []string {
	p.t.Helper()
	tls := openDir(p.t)
	for _, name := range []string{captureconfig.SecretServerCert, captureconfig.SecretServerKey, captureconfig.SecretClientCert} {
		put(p.t, filepath.Join(tls, name), string(p.pairs[name]))
	}
	return []string{
		os.Getenv(agentVariable), "keeper", "--retain", "1h",
		"--listen", p.port, "--tls", tls, "--results", p.results, "--control", p.control,
	}
}

// startKeeper starts the keeper, confined as in its container, and returns when it answers.
func (p *pod) startKeeper(more ...string) {
	p.t.Helper()
	cmd := exec.Command("/proc/self/exe", slices.Concat([]string{p.results, p.control}, p.keeperCommand(), more)...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleKeeper)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	p.keeper = p.start(cmd)
	p.eventually("the keeper answers", func() bool {
		_, err := p.client.Progress(p.t.Context(), p.port)
		return err == nil
	})
}

// eventually waits for a condition.
func (p *pod) eventually(what string, is func() bool) {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(testTimeout); !is(); {
		select {
		case <-tick.C:
		case <-over:
			p.t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// ready waits until the probe container's startup probe would succeed.
func (p *pod) ready() {
	p.t.Helper()
	p.eventually("the probe is ready", func() bool {
		return exec.Command(os.Getenv(agentVariable), "ready", "--results", p.results).Run() == nil
	})
}

// exit waits for a program's end and returns its exit code.
func (p *pod) exit(cmd *exec.Cmd) int {
	p.t.Helper()
	killer := time.AfterFunc(testTimeout, func() { _ = cmd.Process.Kill() })
	defer killer.Stop()
	var failed *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// terminationMessage returns the account in the termination log.
func (p *pod) terminationMessage() account.Account {
	p.t.Helper()
	b, err := os.ReadFile(p.message)
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := account.Parse(b)
	if err != nil {
		p.t.Fatalf("termination message %q: %v", b, err)
	}
	return a
}

// content of a capture file.
type content struct {
	section    pcapng.Section
	interfaces []*pcapng.Interface
	statistics []pcapng.Statistics
	numbers    map[uint64]int // count of each numbered packet
	packets    int64
}

// read reads a file, which must be valid to its end.
func read(t *testing.T, r io.Reader) content {
	t.Helper()
	const headers = 14 + 20 + 8 // Ethernet, IPv4, UDP
	c := content{numbers: map[uint64]int{}}
	in := pcapng.NewReader(r)
	for {
		block, err := in.Next()
		if errors.Is(err, io.EOF) {
			c.interfaces = in.Interfaces()
			return c
		}
		if err != nil {
			t.Fatalf("read file: %v", err)
		}
		switch b := block.(type) {
		case *pcapng.Section:
			c.section = *b
		case *pcapng.Statistics:
			c.statistics = append(c.statistics, *b)
		case *pcapng.Packet:
			c.packets++
			if _, seq, ok := numbered.Get(b.Data[min(headers, len(b.Data)):]); ok {
				c.numbers[seq]++
			}
		}
	}
}

// eachOnce fails unless the file holds the numbers from zero to n, each once.
func (c *content) eachOnce(t *testing.T, n int) {
	t.Helper()
	if len(c.numbers) != n {
		t.Errorf("%d different numbered packets, want %d", len(c.numbers), n)
	}
	for seq, times := range c.numbers {
		if times != 1 || seq >= uint64(n) {
			t.Errorf("packet %d is there %d times", seq, times)
		}
	}
}
