package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

const (
	captureUID  = "bench"
	defaultSnap = 262144
	longest     = "1h"
)

// sondeProcess is the agent's probe, run as in its Pod, with the volumes in a directory.
type sondeProcess struct {
	node    *exec.Cmd
	agent   int    // its process
	engine  string // that is asked for
	results string
	control string
	said    output // on standard error
	report  output // of the node
}

// sondeBy captures by an engine of Sonde's.
func sondeBy(engine string) func(context.Context, *bench, *job) (running, error) {
	return func(ctx context.Context, b *bench, j *job) (running, error) { return startSonde(ctx, b, j, engine) }
}

// startSonde captures all interfaces of the target, as a capture does that names none.
func startSonde(ctx context.Context, b *bench, j *job, engine string) (running, error) {
	p := &sondeProcess{engine: engine, results: filepath.Join(j.dir, "results"), control: filepath.Join(j.dir, "control")}
	config, message := filepath.Join(j.dir, captureconfig.Key), filepath.Join(j.dir, "termination-log")
	text, err := b.sondeConfig(ctx, j, engine)
	if err == nil {
		err = errors.Join(os.Mkdir(p.results, 0o755), os.Mkdir(p.control, 0o755),
			os.WriteFile(config, []byte(text), 0o644), os.WriteFile(message, nil, 0o644))
	}
	if err != nil {
		return nil, err
	}
	p.node = roleCommand(ctx, "role-node", -1, []*os.File{b.net.target}, podCgroup(b.cgroup), strconv.Itoa(b.captureCPU),
		b.agent, "probe", "--config", config, "--capture-uid", captureUID,
		"--pod-uid", podUID, "--pod-name", "bench", "--node", "bench", "--duration", longest,
		"--results", p.results, "--control", p.control, "--termination-log", message)
	p.node.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	p.node.Stdout, p.node.Stderr = &p.report, &p.said
	if err := p.node.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	err = await(ctx, "it captures", func() (bool, error) {
		a, err := p.account()
		if err == nil && a.State == account.StateDone {
			return false, errors.New(a.Message)
		}
		return err == nil && a.State == account.StateCapturing, stillRuns(p.node.Process.Pid)
	})
	found := false
	if err == nil {
		p.agent, found = nodeProcess(p.node, b.agent)
	}
	if !found {
		kill(p.node)
		return nil, fmt.Errorf("start the agent: %w: %s", err, p.said.String())
	}
	return p, nil
}

// sondeConfig is what the manager tells the probe of a capture.
func (b *bench) sondeConfig(ctx context.Context, j *job, engine string) (string, error) {
	c := captureconfig.Config{
		UID: captureUID, Kind: "PacketCapture", Namespace: "bench", Name: "bench", JobID: "bench", Requester: "bench",
		Target: "Pod/bench", TargetNamespace: "bench", Filter: j.filter,
		SnapLength: defaultSnap, MaxBytes: 1 << 40, RingBytes: b.ring, Engine: engine,
		// The disk is looked at before each write, as always; a developer's may be fuller than a node's should be.
		DiskFloor: &captureconfig.Floor{Bytes: 1 << 20},
	}
	if j.snap > 0 {
		c.SnapLength = int32(j.snap)
	}
	if j.filter != "" {
		program, err := b.filters.Compile(ctx, j.filter, pcapfilter.LinkEthernet, int(c.SnapLength))
		if err != nil {
			return "", fmt.Errorf("compile filter %q: %w", j.filter, err)
		}
		c.Programs = map[int32]string{int32(pcapfilter.LinkEthernet): program.String()}
	}
	return c.Marshal()
}

func (p *sondeProcess) account() (account.Account, error) {
	b, err := os.ReadFile(filepath.Join(p.results, captureconfig.ProgressFile))
	if err != nil {
		return account.Account{}, err
	}
	return account.Parse(b)
}

func (p *sondeProcess) pid() int { return p.agent }

// stop asks for the end as the keeper does.
func (p *sondeProcess) stop(ctx context.Context) (ended, error) {
	if err := os.WriteFile(filepath.Join(p.control, captureconfig.StopFile), []byte(account.ReasonStopped), 0o644); err != nil {
		return ended{}, err
	}
	if err := wait(ctx, p.node); err != nil {
		return ended{}, fmt.Errorf("%w: %s", err, p.said.String())
	}
	var node nodeEnded
	if err := json.Unmarshal([]byte(p.report.String()), &node); err != nil {
		return ended{}, fmt.Errorf("read the node's report %q: %w", p.report.String(), err)
	}
	a, err := p.account()
	if err != nil {
		return ended{}, err
	}
	if !tookBy(p.engine, a.Engine) {
		return ended{}, fmt.Errorf("packets were taken by %s, not by %s: %s", a.Engine, p.engine, a.EngineMessage)
	}
	if !a.AddsUp() || !a.Complete || len(a.Files) != 1 || strings.Contains(a.Files[0].Name, "/") {
		return ended{}, fmt.Errorf("the account is not whole: %+v", a)
	}
	return ended{file: filepath.Join(p.results, a.Files[0].Name), dropped: int(a.Dropped()), cpu: node.CPU}, nil
}

// tookBy tells whether what took the packets is what was asked for: a row must not be another's.
func tookBy(asked, took string) bool {
	if asked == captureconfig.EngineBPF {
		return took == tc.TCX || took == tc.Clsact
	}
	return took == asked
}
