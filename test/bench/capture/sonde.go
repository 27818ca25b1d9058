package capture

import (
	"cmp"
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
	"github.com/sonde-operator/sonde/test/bench/host"
)

// sondeProcess is a probe on a simulated node.
type sondeProcess struct {
	host.Probe
	node   *exec.Cmd
	engine string      // that was requested
	names  bool        // each packet must name its process
	report host.Output // of the node
}

// sondeBy captures with one of Sonde's engines.
func sondeBy(engine string) func(context.Context, *host.Env, *job) (running, error) {
	return func(ctx context.Context, b *host.Env, j *job) (running, error) {
		return startSonde(ctx, b, j, engine)
	}
}

// startSonde captures all interfaces of the target, as a capture without spec.interfaces does.
func startSonde(ctx context.Context, b *host.Env, j *job, engine string) (*sondeProcess, error) {
	p := &sondeProcess{engine: engine, names: j.processes, Probe: host.NewProbe(j.dir)}
	config, message := filepath.Join(j.dir, captureconfig.Key), filepath.Join(j.dir, "termination-log")
	text, err := sondeConfig(ctx, b, j, engine)
	if err == nil {
		err = errors.Join(os.Mkdir(p.Results, 0o755), os.Mkdir(p.Control, 0o755),
			os.WriteFile(config, []byte(text), 0o644), os.WriteFile(message, nil, 0o644))
	}
	if err != nil {
		return nil, err
	}
	p.node = host.RoleCommand(ctx, "role-node", -1, []*os.File{cmp.Or(j.namespace, b.Net.Target)}, host.PodCgroup(b.Cgroup), strconv.Itoa(b.CaptureCPU),
		b.Agent, "probe", "--config", config, "--capture-uid", host.CaptureUID,
		"--pod-uid", host.PodUID, "--pod-name", "bench", "--node", "bench", "--duration", host.Longest,
		"--results", p.Results, "--control", p.Control, "--termination-log", message)
	p.node.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
	p.node.Stdout, p.node.Stderr = &p.report, &p.Said
	if err := p.node.Start(); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	err = host.Await(ctx, "it captures", func() (bool, error) {
		a, err := p.Account()
		if err == nil && a.State == account.StateDone {
			return false, errors.New(a.Message)
		}
		return err == nil && a.State == account.StateCapturing, host.StillRuns(p.node.Process.Pid)
	})
	found := false
	if err == nil {
		p.Agent, found = nodeProcess(p.node, b.Agent)
	}
	if !found {
		host.Kill(p.node)
		return nil, fmt.Errorf("start the agent: %w: %s", err, p.Said.String())
	}
	return p, nil
}

// sondeConfig returns the configuration that the manager gives to the probe.
func sondeConfig(ctx context.Context, b *host.Env, j *job, engine string) (string, error) {
	c := captureconfig.Config{
		UID: host.CaptureUID, Kind: "PacketCapture", Namespace: "bench", Name: "bench", JobID: "bench", Requester: "bench",
		Target: "Pod/bench", TargetNamespace: "bench", Filter: j.filter,
		SnapLength: host.DefaultSnap, MaxBytes: 1 << 40, RingBytes: b.Ring, Engine: engine, Processes: j.processes,
		// The probe checks the disk before each write. A developer's disk may be fuller than a node's.
		DiskFloor: &captureconfig.Floor{Bytes: 1 << 20},
	}
	if j.snap > 0 {
		c.SnapLength = int32(j.snap)
	}
	if j.filter != "" {
		program, err := b.Filters.Compile(ctx, j.filter, pcapfilter.LinkEthernet, int(c.SnapLength))
		if err != nil {
			return "", fmt.Errorf("compile filter %q: %w", j.filter, err)
		}
		c.Programs = map[int32]string{int32(pcapfilter.LinkEthernet): program.String()}
	}
	return c.Marshal()
}

// stop ends the capture as the keeper does.
func (p *sondeProcess) stop(ctx context.Context) (ended, error) {
	if err := os.WriteFile(filepath.Join(p.Control, captureconfig.StopFile), []byte(account.ReasonStopped), 0o644); err != nil {
		return ended{}, err
	}
	if err := host.Wait(ctx, p.node); err != nil {
		return ended{}, fmt.Errorf("%w: %s", err, p.Said.String())
	}
	var node nodeEnded
	if err := json.Unmarshal([]byte(p.report.String()), &node); err != nil {
		return ended{}, fmt.Errorf("read the node's report %q: %w", p.report.String(), err)
	}
	a, err := p.Account()
	if err != nil {
		return ended{}, err
	}
	if !capturedBy(p.engine, a.Engine) {
		return ended{}, fmt.Errorf("packets were captured by %s, not by %s: %s", a.Engine, p.engine, a.EngineMessage)
	}
	if !a.AddsUp() || !a.Complete || len(a.Files) != 1 || strings.Contains(a.Files[0].Name, "/") {
		return ended{}, fmt.Errorf("the account is incomplete: %+v", a)
	}
	if p.names && (a.Processes == nil || a.Processes.Named < a.Packets) {
		return ended{}, fmt.Errorf("not all of %d packets name their process: %+v", a.Packets, a.Processes)
	}
	return ended{file: filepath.Join(p.Results, a.Files[0].Name), dropped: int(a.Dropped()), cpu: node.CPU}, nil
}

// capturedBy reports whether the requested engine captured the packets.
func capturedBy(asked, took string) bool {
	if asked == captureconfig.EngineBPF {
		return took == tc.TCX || took == tc.Clsact
	}
	return took == asked
}
