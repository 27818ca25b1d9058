//go:build vm

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// wantEngineVariable names the engine that BPF must select: tcx, or clsact if the kernel has no tcx.
const wantEngineVariable = "SONDE_TEST_WANT_ENGINE"

// inKernel has the loaded BPF programs and maps by ID. In the virtual machine only this test loads any.
type inKernel struct {
	programs map[ebpf.ProgramID]bool
	maps     map[ebpf.MapID]bool
}

func lookIntoKernel(t *testing.T) inKernel {
	t.Helper()
	return inKernel{all(t, ebpf.ProgramGetNextID), all(t, ebpf.MapGetNextID)}
}

func all[ID ~uint32](t *testing.T, next func(ID) (ID, error)) map[ID]bool {
	t.Helper()
	ids := map[ID]bool{}
	for id := ID(0); ; {
		var err error
		if id, err = next(id); errors.Is(err, os.ErrNotExist) {
			return ids
		} else if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
}

// since counts the objects that are not in before.
func (k inKernel) since(before inKernel) (n int) {
	for id := range k.programs {
		if !before.programs[id] {
			n++
		}
	}
	for id := range k.maps {
		if !before.maps[id] {
			n++
		}
	}
	return n
}

// moments at which a probe is killed, each with a function that returns at that moment.
var moments = map[string]func(p *pod, c *clsactOf, before inKernel){
	"loading": func(p *pod, _ *clsactOf, before inKernel) {
		p.eventually("something is loaded", func() bool { return lookIntoKernel(p.t).since(before) > 0 })
	},
	"loaded": func(p *pod, _ *clsactOf, before inKernel) {
		p.eventually("programs are loaded", func() bool { return len(lookIntoKernel(p.t).programs) >= len(before.programs)+2 })
	},
	"attaching": func(p *pod, c *clsactOf, _ inKernel) {
		p.eventually("something is attached", func() bool { return c.isThere() || p.isReady() })
	},
	"attached": func(p *pod, _ *clsactOf, _ inKernel) {
		p.eventually("the file is there", func() bool {
			_, err := os.Stat(filepath.Join(p.results, file))
			return !errors.Is(err, fs.ErrNotExist)
		})
	},
	"running": func(p *pod, _ *clsactOf, _ inKernel) {
		p.ready()
		p.sends(1000)
	},
	"asked to end": func(p *pod, _ *clsactOf, _ inKernel) {
		p.ready()
		p.sends(1000)
		put(p.t, filepath.Join(p.control, captureconfig.StopFile), account.ReasonStopped)
		time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond)))) // somewhere between the request and the end
	},
	"ending": func(p *pod, c *clsactOf, _ inKernel) {
		p.ready()
		put(p.t, filepath.Join(p.control, captureconfig.StopFile), account.ReasonStopped)
		p.eventually("it has ended, nearly", func() bool { return !c.isThere() || p.isDone() })
	},
}

// isReady reports whether the probe is ready.
func (p *pod) isReady() bool {
	b, err := os.ReadFile(filepath.Join(p.results, captureconfig.ProgressFile))
	if err != nil {
		return false
	}
	a, err := account.Parse(b)
	return err == nil && !a.Started.IsZero()
}

func (p *pod) isDone() bool {
	b, err := os.ReadFile(p.message)
	if err != nil {
		return false
	}
	a, err := account.Parse(b)
	return err == nil && a.State == account.StateDone
}

// TestKilled kills a probe at several moments: the next probe in its namespace, or a sweep, removes its filters, disciplines,
// programs and maps.
func TestKilled(t *testing.T) {
	if os.Getenv(roleVariable) != roleNode {
		runOnNode(t)
		return
	}
	for where, flags := range map[string]uintptr{"in a Pod": syscall.CLONE_NEWNET, "on the host network": 0} {
		for moment, come := range moments {
			for _, by := range []string{"the next probe", "a sweep"} {
				t.Run(fmt.Sprintf("%s, %s, %s", where, moment, by), func(t *testing.T) {
					before := lookIntoKernel(t)
					p := bpfPod(t)
					p.startTarget(flags)
					var more []string
					if flags == 0 {
						more = []string{"--host-network"}
					}
					c := clsactIn(t, p.target.Process.Pid)
					p.startProbe(append(more, "--duration", "5m")...)
					come(p, c, before)
					_ = p.probe.Process.Kill()
					_ = p.probe.Wait()
					if left := os.Getenv(wantEngineVariable) == "clsact"; moment == "running" && c.isThere() != left {
						t.Errorf("left at clsact: %v, want %v, otherwise this test shows nothing", !left, left)
					}
					if by == "a sweep" {
						if code := p.sweep(more...); code != 0 {
							t.Errorf("the sweep's exit code is %d", code)
						}
					} else {
						p.nextProbe(more)
					}
					if c.isThere() {
						t.Error("the queueing discipline is left")
					}
					p.eventually("nothing is left in the kernel", func() bool { return lookIntoKernel(t).since(before) == 0 })
				})
			}
		}
	}
}

// bpfPod is a Pod whose probe must use BPF.
func bpfPod(t *testing.T) *pod {
	t.Helper()
	p := newPod(t)
	b, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	config, err := captureconfig.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	config.Engine = captureconfig.EngineBPF
	config.Version = config.LowestVersion()
	text, err := config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.config, text)
	return p
}

// nextProbe captures the same target once more, to the end.
func (p *pod) nextProbe(more []string) {
	p.t.Helper()
	next := bpfPod(p.t)
	next.uid, next.send, next.said = p.uid, p.send, p.said
	next.startProbe(append(more, "--duration", "5m")...)
	next.ready()
	next.sends(500)
	put(p.t, filepath.Join(next.control, captureconfig.StopFile), account.ReasonStopped)
	if code := next.exit(next.probe); code != 0 {
		p.t.Errorf("the next probe's exit code is %d", code)
	}
	if a := next.terminationMessage(); a.Engine != os.Getenv(wantEngineVariable) || !a.Complete || a.Packets < 500 {
		p.t.Errorf("the next probe: engine %s, want %s; %+v", a.Engine, os.Getenv(wantEngineVariable), a)
	}
}
