package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/afpacket"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// Inodes of network namespaces that the fake target knows.
const (
	nodeInode = 100
	podInode  = 200
)

// fakeTarget is a Pod with fake processes.
type fakeTarget struct {
	opens  func(n int) (uint64, error) // result of the n-th call of open, from zero
	calls  int
	left   chan struct{} // closed when the Pod leaves
	broken error         // error of gone
	host   error         // error of node
}

func newFakeTarget() *fakeTarget {
	return &fakeTarget{opens: func(int) (uint64, error) { return podInode, nil }, left: make(chan struct{})}
}

func (f *fakeTarget) open() (*process.NetNS, error) {
	f.calls++
	inode, err := f.opens(f.calls - 1)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(os.DevNull)
	return &process.NetNS{File: file, Inode: inode}, err
}

func (f *fakeTarget) node() (uint64, error) { return nodeInode, f.host }

func (f *fakeTarget) gone(ctx context.Context, inode uint64) error {
	if inode != podInode && inode != nodeInode {
		return fmt.Errorf("asked to watch namespace %d", inode)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.left:
		return f.broken
	}
}

// fakeEngine is an engine whose captures have the given result. By default they run until their context ends.
type fakeEngine struct {
	openErr error
	kind    capture.Kind
	config  *capture.Config
	opened  chan struct{}
	run     func(ctx context.Context) capture.Result
	live    record.Account
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{opened: make(chan struct{}), run: untilEnd(account3())}
}

func account3() record.Account {
	c := record.Counters{Received: 5, Written: 3, Bytes: 300, DroppedRing: 2, Truncated: 1}
	return record.Account{Engine: "tcx", Counters: c, FileBytes: 700, Files: []record.File{{Name: "web-1-ab12.pcapng", Bytes: 700}}, Interfaces: []record.InterfaceAccount{{Name: "eth0", Counters: c}}}
}

// untilEnd runs like a real engine: the cause of the context is the reason.
func untilEnd(a record.Account) func(context.Context) capture.Result {
	return func(ctx context.Context) capture.Result {
		<-ctx.Done()
		r := capture.Result{Account: a}
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, recording.ErrTargetGone):
			r.Reason = recording.TargetGone
		case errors.Is(cause, context.DeadlineExceeded):
			r.Reason = recording.Duration
		default:
			r.Reason = recording.Stopped
		}
		return r
	}
}

func ends(r capture.Result) func(context.Context) capture.Result {
	return func(context.Context) capture.Result { return r }
}

func (e *fakeEngine) forKind(kind capture.Kind) capture.Engine {
	e.kind = kind
	return e
}

func (e *fakeEngine) Open(cfg *capture.Config) (capture.Capture, error) {
	if e.openErr != nil {
		return nil, e.openErr
	}
	e.config = cfg
	close(e.opened)
	return e, nil
}

func (e *fakeEngine) Run(ctx context.Context) capture.Result { return e.run(ctx) }
func (e *fakeEngine) Account() record.Account                { return e.live }
func (e *fakeEngine) Close() error                           { return nil }

// bench is a probe with fakes around it.
type bench struct {
	*Probe
	target *fakeTarget
	engine *fakeEngine
	// act is called when the engine is attached.
	act func(t *testing.T, b *bench, terminate context.CancelFunc)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		CaptureUID: "uid-1", PodUID: "11111111-2222-3333-4444-555555555555", PodName: "web-1", Node: "n1", Duration: time.Minute,
		ConfigFile: filepath.Join(dir, captureconfig.Key), ResultsDir: filepath.Join(dir, "results"),
		ControlDir: filepath.Join(dir, "control"), TerminationLog: filepath.Join(dir, "termination-log"),
	}
	for _, d := range []string{o.ResultsDir, o.ControlDir} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	text, err := captureconfig.Config{
		UID: "uid-1", Kind: "PacketCapture", Namespace: "hub", Name: "web", JobID: "ab12", Requester: "alice", Target: "Deployment/web",
		TargetNamespace: "shop", Filter: "tcp", Programs: map[int32]string{1: "1,6 0 0 262144", 101: "0"},
		SnapLength: 128, Interfaces: []string{"eth0"}, MaxBytes: 1 << 20, MaxPackets: 7, RingBytes: 1 << 21,
	}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(t, o.ConfigFile, text)
	write(t, o.TerminationLog, "")
	b := &bench{target: newFakeTarget(), engine: newFakeEngine()}
	b.Probe = New(&o, b.engine.forKind, slog.New(slog.DiscardHandler))
	b.rights = func() error { return nil }
	b.Probe.target = b.target
	b.waits = waits{config: 50 * time.Millisecond, process: 50 * time.Millisecond, retry: time.Millisecond, stop: time.Millisecond, report: time.Millisecond}
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs the probe to its end and returns the exit code and the account, which must be the same in both places.
func (b *bench) run(t *testing.T) (int, account.Account) {
	t.Helper()
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	if b.act != nil {
		go func() {
			select {
			case <-b.engine.opened:
				b.act(t, b, terminate)
			case <-ctx.Done():
			}
		}()
	}
	code := b.Run(ctx)
	progress := b.read(t, filepath.Join(b.options.ResultsDir, captureconfig.ProgressFile))
	if diff := cmp.Diff(progress, b.read(t, b.options.TerminationLog)); diff != "" {
		t.Errorf("progress file and termination message differ (-progress +message):\n%s", diff)
	}
	return code, progress
}

func (b *bench) read(t *testing.T, path string) account.Account {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, err := account.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return a
}

// stopWith writes a stop file atomically, like the keeper.
func stopWith(content string) func(*testing.T, *bench, context.CancelFunc) {
	return func(t *testing.T, b *bench, _ context.CancelFunc) {
		t.Helper()
		temporary := filepath.Join(b.options.ControlDir, "new")
		write(t, temporary, content)
		if err := os.Rename(temporary, filepath.Join(b.options.ControlDir, captureconfig.StopFile)); err != nil {
			t.Error(err)
		}
	}
}

// TestMissingInterfaceIsReported checks that the progress names an interface while it is missing.
func TestMissingInterfaceIsReported(t *testing.T) {
	b := newBench(t)
	b.engine.live = account3()
	b.engine.live.Interfaces = []record.InterfaceAccount{{Name: "wlan0", Note: "no such interface"}}
	b.act = func(t *testing.T, b *bench, terminate context.CancelFunc) {
		t.Helper()
		defer terminate()
		path := filepath.Join(b.options.ResultsDir, captureconfig.ProgressFile)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			a := b.read(t, path)
			if a.State == account.StateCapturing && a.Reason == account.ReasonInterfaceNotFound && a.Message == "wlan0: no such interface" {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("progress %+v", a)
				return
			}
		}
	}
	if _, a := b.run(t); a.Reason != account.ReasonDrained {
		t.Errorf("reason %s", a.Reason)
	}
}

func TestEndReasons(t *testing.T) {
	whole := account3()
	lost := whole
	lost.Received++
	noted := whole
	noted.Interfaces = append(noted.Interfaces, record.InterfaceAccount{Name: "wlan0", Index: 3, Note: "link type 127 is not known"})
	incomplete := whole
	incomplete.Interfaces = append(incomplete.Interfaces, record.InterfaceAccount{Name: "wlan0", Note: "no such interface"})
	missed := noted
	missed.Interfaces = append(slices.Clone(noted.Interfaces), record.InterfaceAccount{Name: "eth1", Index: 4, Gap: true, Note: "moved"})
	tests := map[string]struct {
		change       func(*bench)
		act          func(*testing.T, *bench, context.CancelFunc)
		wantCode     int
		wantReason   string
		wantAsked    bool
		wantComplete bool
		wantMessage  string
	}{
		"duration":      {change: func(b *bench) { b.options.Duration = time.Millisecond }, wantReason: account.ReasonDuration, wantComplete: true},
		"stopped":       {act: stopWith("Stopped"), wantReason: account.ReasonStopped, wantAsked: true, wantComplete: true},
		"stopped early": {act: stopWith(""), wantReason: account.ReasonStopped, wantAsked: true, wantComplete: true},
		"unknown word":  {act: stopWith(strings.Repeat("Boredom", 1<<16)), wantReason: account.ReasonStopped, wantAsked: true, wantComplete: true},
		"revoked":       {act: stopWith("AccessRevoked\n"), wantReason: account.ReasonAccessRevoked, wantAsked: true, wantComplete: true},
		"gone, by stop": {act: stopWith("TargetGone"), wantReason: account.ReasonTargetGone, wantAsked: true, wantComplete: true},
		"gone, by watch": {
			act:        func(_ *testing.T, b *bench, _ context.CancelFunc) { close(b.target.left) },
			wantReason: account.ReasonTargetGone, wantComplete: true,
		},
		"a new sandbox": {
			change:   func(b *bench) { b.target.broken = errNewSandbox; close(b.target.left) },
			wantCode: ExitIncomplete, wantReason: account.ReasonTargetNotGone, wantMessage: "runs on in a new sandbox",
		},
		"packets": {
			change:     func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.PacketLimit, Account: whole}) },
			wantReason: account.ReasonPacketLimit, wantComplete: true,
		},
		"bytes": {
			change:     func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.ByteLimit, Account: whole}) },
			wantReason: account.ReasonByteLimit, wantComplete: true,
		},
		"an interface left out": {
			change:     func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.Duration, Account: noted}) },
			wantReason: account.ReasonDuration, wantComplete: true, wantMessage: "wlan0: link type 127",
		},
		"an interface that never appeared": {
			change:     func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.Duration, Account: incomplete}) },
			wantReason: account.ReasonInterfaceNotFound, wantComplete: true, wantMessage: "wlan0: no such interface",
		},
		"an interface that was missed": {
			change:     func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.TargetGone, Account: missed}) },
			wantReason: account.ReasonInterfaceMissed, wantComplete: true, wantMessage: "eth1: moved; wlan0: link type 127",
		},
		"an interface that was missed, and the disk is full": {
			change:   func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.DiskFull, Account: missed}) },
			wantCode: ExitIncomplete, wantReason: account.ReasonDiskFull, wantMessage: "eth1: moved",
		},
		"an interface that never appeared, drained": {
			change:   func(b *bench) { b.engine.run = untilEnd(incomplete) },
			act:      func(_ *testing.T, _ *bench, terminate context.CancelFunc) { terminate() },
			wantCode: ExitIncomplete, wantReason: account.ReasonDrained, wantMessage: "the agent's Pod was terminated",
		},
		"drained": {
			act:      func(_ *testing.T, _ *bench, terminate context.CancelFunc) { terminate() },
			wantCode: ExitIncomplete, wantReason: account.ReasonDrained, wantMessage: "the agent's Pod was terminated",
		},
		"disk full": {
			change: func(b *bench) {
				b.engine.run = ends(capture.Result{Reason: recording.DiskFull, Account: whole, Err: errors.New("no space left on device")})
			},
			wantCode: ExitIncomplete, wantReason: account.ReasonDiskFull, wantMessage: "no space left",
		},
		"engine error": {
			change: func(b *bench) {
				b.engine.run = ends(capture.Result{Reason: recording.Error, Account: whole, Err: errors.New("bad descriptor")})
			},
			wantCode: ExitIncomplete, wantReason: account.ReasonProbeError, wantMessage: "bad descriptor",
		},
		"does not add up": {
			change:   func(b *bench) { b.engine.run = ends(capture.Result{Reason: recording.Duration, Account: lost}) },
			wantCode: ExitIncomplete, wantReason: account.ReasonDuration, wantMessage: "does not add up: seen 6, in files 3, overwritten 0, dropped 2",
		},
		"engine panics": {
			change: func(b *bench) {
				b.engine.live = whole
				b.engine.run = func(context.Context) capture.Result { panic("index out of range") }
			},
			wantCode: ExitIncomplete, wantReason: account.ReasonProbeError, wantMessage: "panic: index out of range",
		},
		"a watch panics": {
			change:   func(b *bench) { b.target.left = nil; b.Probe.target = panicking{b.target} },
			wantCode: ExitIncomplete, wantReason: account.ReasonProbeError, wantMessage: "panic: watching",
		},
		"a failed watch is no end": {
			change: func(b *bench) {
				b.target.broken = errors.New("no pidfd")
				close(b.target.left)
				b.options.Duration = 20 * time.Millisecond
			},
			wantReason: account.ReasonDuration, wantComplete: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.act = tc.act
			if tc.change != nil {
				tc.change(b)
			}
			code, got := b.run(t)
			want := account.Account{
				Version: 1, State: account.StateDone, Engine: "tcx", Reason: tc.wantReason, Asked: tc.wantAsked, Complete: tc.wantComplete,
				Counts:     account.Counts{Seen: 5, Packets: 3, Bytes: 300, DroppedRing: 2, Truncated: 1},
				Interfaces: []account.Interface{{Name: "eth0", Counts: account.Counts{Seen: 5, Packets: 3, Bytes: 300, DroppedRing: 2, Truncated: 1}}},
				Files:      []account.File{{Name: "web-1-ab12.pcapng", Bytes: 700}},
			}
			if name == "does not add up" {
				want.Seen = 6
			}
			if strings.HasPrefix(name, "an interface") {
				want.Interfaces = append(want.Interfaces, account.Interface{Name: "wlan0"})
			}
			if strings.Contains(name, "was missed") {
				want.Interfaces = append(want.Interfaces, account.Interface{Name: "eth1"})
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(account.Account{}, "Started", "Ended", "Message")); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if code != tc.wantCode || !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("exit code %d, message %q; want %d, %q", code, got.Message, tc.wantCode, tc.wantMessage)
			}
			if got.Started.IsZero() || got.Ended.Before(got.Started) {
				t.Errorf("from %v to %v", got.Started, got.Ended)
			}
		})
	}
}

// panicking is a target whose watch has a bug.
type panicking struct{ *fakeTarget }

func (panicking) gone(context.Context, uint64) error { panic("watching") }

func TestEndBeforeTheCapture(t *testing.T) {
	none := func(int) (uint64, error) { return 0, fmt.Errorf("find: %w", process.ErrNoProcess) }
	tests := map[string]struct {
		change      func(t *testing.T, b *bench)
		wantReason  string
		wantMessage string
	}{
		"no configuration": {
			change:     func(_ *testing.T, b *bench) { b.options.ConfigFile += ".missing" },
			wantReason: account.ReasonProbeError, wantMessage: "read configuration",
		},
		"bad configuration": {
			change:     func(t *testing.T, b *bench) { t.Helper(); write(t, b.options.ConfigFile, `{"v":9}`) },
			wantReason: account.ReasonProbeError, wantMessage: "version 9",
		},
		"bad filter": {
			change: func(t *testing.T, b *bench) {
				t.Helper()
				write(t, b.options.ConfigFile, `{"v":1,"uid":"uid-1","snapLength":1,"maxBytes":1,"ringBytes":1,"programs":{"1":"1,255 0 0 0"}}`)
			},
			wantReason: account.ReasonProbeError, wantMessage: "read filter of link type 1",
		},
		"bad link type": {
			change: func(t *testing.T, b *bench) {
				t.Helper()
				write(t, b.options.ConfigFile, `{"v":1,"uid":"uid-1","snapLength":1,"maxBytes":1,"ringBytes":1,"programs":{"70000":"0"}}`)
			},
			wantReason: account.ReasonProbeError, wantMessage: "70000 is not a link type",
		},
		"no process": {
			change:     func(_ *testing.T, b *bench) { b.target.opens = none },
			wantReason: account.ReasonTargetGone, wantMessage: "wait 50ms for pod web-1",
		},
		"processes cannot be read": {
			change: func(_ *testing.T, b *bench) {
				b.target.opens = func(int) (uint64, error) { return 0, errors.New("permission denied") }
			},
			wantReason: account.ReasonProbeError, wantMessage: "permission denied",
		},
		"the node's namespace is unknown": {
			change:     func(_ *testing.T, b *bench) { b.target.host = errors.New("needs hostPID") },
			wantReason: account.ReasonProbeError, wantMessage: "needs hostPID",
		},
		"the node's network": {
			change:     func(_ *testing.T, b *bench) { b.target.opens = func(int) (uint64, error) { return nodeInode, nil } },
			wantReason: account.ReasonProbeError, wantMessage: "wait 50ms for pod web-1: the Pod's network namespace is the node's",
		},
		"processes in namespaces of their own": {
			change: func(_ *testing.T, b *bench) {
				b.target.opens = func(int) (uint64, error) { return 0, process.ErrOwnNetNS }
			},
			wantReason: account.ReasonProbeError, wantMessage: "wait 50ms for pod web-1: the Pod's processes have left its network namespace",
		},
		"no engine": {
			change:     func(_ *testing.T, b *bench) { b.engine.openErr = errors.New("needs CAP_NET_RAW") },
			wantReason: account.ReasonProbeError, wantMessage: "attach to pod web-1: needs CAP_NET_RAW",
		},
		"no room on the node": {
			change: func(_ *testing.T, b *bench) {
				b.engine.openErr = fmt.Errorf("create capture file: %w", unix.ENOSPC)
			},
			wantReason: account.ReasonDiskFull, wantMessage: "attach to pod web-1: create capture file: no space left on device",
		},
		"stopped while waiting": {
			change: func(t *testing.T, b *bench) {
				t.Helper()
				b.target.opens, b.waits.process = none, time.Minute
				write(t, filepath.Join(b.options.ControlDir, captureconfig.StopFile), account.ReasonTargetGone)
			},
			wantReason: account.ReasonTargetGone, wantMessage: "ended before the capture began: asked to end: TargetGone",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tc.change(t, b)
			code, got := b.run(t)
			want := account.Account{Version: 1, State: account.StateDone, Reason: tc.wantReason}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(account.Account{}, "Ended", "Message")); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if code != ExitFailed || !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("exit code %d, message %q; want %d, %q", code, got.Message, ExitFailed, tc.wantMessage)
			}
		})
	}
}

func TestDrainedWhileWaiting(t *testing.T) {
	b := newBench(t)
	b.waits.process = time.Minute
	ctx, terminate := context.WithCancel(t.Context())
	b.target.opens = func(n int) (uint64, error) {
		if n == 3 {
			terminate()
		}
		return 0, process.ErrNoProcess
	}
	code := b.Run(ctx)
	a := b.read(t, b.options.TerminationLog)
	if code != ExitFailed || a.Reason != account.ReasonDrained {
		t.Errorf("exit code %d, account %+v", code, a)
	}
}

// A runtime puts a process into the Pod's cgroup a moment before it leaves the node's network namespace. The probe
// waits for each with its own timeout, and the progress names the current one.
func TestWaitsForTheFirstProcess(t *testing.T) {
	b := newBench(t)
	b.options.Duration, b.waits.process = time.Millisecond, time.Minute
	var said []string
	b.target.opens = func(n int) (uint64, error) {
		said = append(said, b.read(t, filepath.Join(b.options.ResultsDir, captureconfig.ProgressFile)).Message)
		switch {
		case n < 2:
			return 0, process.ErrNoProcess
		case n < 4:
			return nodeInode, nil
		default:
			return podInode, nil
		}
	}
	if code, a := b.run(t); code != ExitComplete || a.Message != "" {
		t.Errorf("exit code %d: %s", code, a.Message)
	}
	first, second := "waiting for the Pod's first process", "waiting for the Pod's first process to leave the node's network namespace"
	if diff := cmp.Diff([]string{first, first, first, second, second}, said); diff != "" {
		t.Errorf("progress at each call of open (-want +got):\n%s", diff)
	}
}

func TestHostNetworkWhereAllowed(t *testing.T) {
	b := newBench(t)
	b.options.Duration, b.options.HostNetwork = time.Millisecond, true
	b.target.opens = func(int) (uint64, error) { return nodeInode, nil }
	if code, a := b.run(t); code != ExitComplete {
		t.Errorf("exit code %d: %s", code, a.Message)
	}
}

func TestEngineIsTheOneAskedFor(t *testing.T) {
	for engine, want := range map[string]capture.Kind{"": capture.KindAFPacket, "afpacket": capture.KindAFPacket, "auto": capture.KindAuto, "bpf": capture.KindBPF} {
		t.Run(engine, func(t *testing.T) {
			b := newBench(t)
			b.options.Duration = time.Millisecond
			text, err := captureconfig.Config{UID: "uid-1", SnapLength: 1, MaxBytes: 1, RingBytes: 1, Engine: engine}.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			write(t, b.options.ConfigFile, text)
			taken := account3()
			taken.Engine, taken.EngineMessage = afpacket.Name, "the kernel has no tcx"
			b.engine.live, b.engine.run = taken, ends(capture.Result{Reason: recording.Duration, Account: taken})
			_, got := b.run(t)
			if b.engine.kind != want {
				t.Errorf("engine %q, want %q", b.engine.kind, want)
			}
			if got.Engine != afpacket.Name || got.EngineMessage != taken.EngineMessage {
				t.Errorf("the account says %q, %q", got.Engine, got.EngineMessage)
			}
		})
	}
}

func TestEngineGetsTheWholeConfig(t *testing.T) {
	b := newBench(t)
	b.options.Duration = time.Millisecond
	b.run(t)
	got := b.engine.config
	if got.NetNS == nil || got.Log == nil || got.Followed == nil || got.Complete == nil {
		t.Errorf("namespace %v, log %v, followed %p, complete %p", got.NetNS, got.Log, got.Followed, got.Complete)
	}
	if len(got.Filters) != 2 || len(got.Filters[1]) != 1 || got.Filters[1][0].K != 262144 || got.Filters[101] != nil {
		t.Errorf("filters %v", got.Filters)
	}
	want := &capture.Config{
		Interfaces: []string{"eth0"}, FilterText: "tcp", SnapLen: 128, RingBytes: 1 << 21, MaxBytes: 1 << 20, MaxPackets: 7,
		Dir: b.options.ResultsDir, Base: "web-1-ab12", FileMode: 0o644, Description: "shop/web-1, node n1", Owner: "uid-1",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(capture.Config{}, "NetNS", "Log", "Filters", "Section", "Followed", "Complete")); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	wantComments := []string{
		"requester: alice",
		"capture: PacketCapture hub/web, uid uid-1, jobId ab12",
		"target: Deployment/web in namespace shop, pod web-1, uid 11111111-2222-3333-4444-555555555555, node n1",
		"filter: tcp",
	}
	if diff := cmp.Diff(wantComments, got.Section.Comments); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got.Section.OS, "Linux ") || !strings.HasPrefix(got.Section.Application, "sonde ") {
		t.Errorf("section %+v", got.Section)
	}
}

// The engine learns whether someone follows the capture, and what it says about its packets is in the results volume. What the control
// volume has instead of a file is not read.
func TestFollowers(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.options.ControlDir, captureconfig.FollowFile)
	horizon := filepath.Join(b.options.ResultsDir, captureconfig.HorizonFile)
	b.act = func(t *testing.T, b *bench, terminate context.CancelFunc) {
		t.Helper()
		defer terminate()
		await := func(want bool) {
			t.Helper()
			for deadline := time.Now().Add(10 * time.Second); b.engine.config.Followed() != want; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("followed %v, want %v", !want, want)
					return
				}
			}
		}
		write(t, path, "1")
		await(true)
		for _, at := range []uint64{7, 8} {
			b.engine.config.Complete(at)
			got, err := os.ReadFile(horizon)
			if err != nil || captureconfig.ParseHorizon(got) != at {
				t.Errorf("horizon %q, %v, want %d", got, err, at)
			}
		}
		if info, err := os.Stat(horizon); err != nil || info.Mode().Perm() != fileMode {
			t.Errorf("%v, %v: the keeper cannot read it", info, err)
		}
		write(t, path, "0")
		await(false)
		write(t, path, "1")
		await(true)
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		await(false)
		secret := filepath.Join(t.TempDir(), "secret")
		write(t, secret, "1")
		if err := os.Symlink(secret, path); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
		await(false)
	}
	b.run(t)
}

// A horizon that cannot be written ends no capture.
func TestNoHorizon(t *testing.T) {
	b := newBench(t)
	b.options.Duration = time.Millisecond
	if err := os.Mkdir(filepath.Join(b.options.ResultsDir, captureconfig.HorizonFile), 0o755); err != nil {
		t.Fatal(err)
	}
	b.engine.run = func(context.Context) capture.Result {
		b.engine.config.Complete(7)
		b.engine.config.Complete(8)
		return capture.Result{Reason: recording.Duration}
	}
	if code, a := b.run(t); code != ExitComplete {
		t.Errorf("code %d, %+v", code, a)
	}
}
