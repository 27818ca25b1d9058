package probe

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// A process that is not the Pod's is no reason to end the capture, but the account says why no packet names its process.
func TestProcessesOfTheConfiguration(t *testing.T) {
	for name, processes := range map[string]bool{"wanted": true, "not wanted": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.Duration = time.Millisecond
			text, err := captureconfig.Config{
				UID: "uid-1", SnapLength: 1, MaxBytes: 1, RingBytes: 1, Engine: captureconfig.EngineAuto, Processes: processes,
			}.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			write(t, b.options.ConfigFile, text)
			a := account3()
			a.Processes = &record.Processes{Named: 3, Reasons: map[pcapng.ProcessReason]uint64{
				pcapng.ProcessNoReceiver: 1, pcapng.ProcessNotIP: 1, pcapng.ProcessForked: 5,
			}}
			b.engine.live, b.engine.run = a, ends(capture.Result{Reason: recording.Duration, Account: a})
			_, got := b.run(t)
			want := &account.Processes{Named: 3, None: 2, Unknown: map[string]int64{"forked": 5}}
			if diff := cmp.Diff(want, got.Processes); diff != "" {
				t.Errorf("account (-want +got):\n%s", diff)
			}
			if p := b.engine.config.Processes; (p != nil) != processes || processes && p.Unavailable == "" {
				t.Errorf("the engine was given %+v", p)
			}
		})
	}
}

func TestContainerOfNoContainer(t *testing.T) {
	if name := (&containerNames{}).of(os.Getpid()); name != "" {
		t.Errorf("this test runs in container %q", name)
	}
	if name := (&containerNames{}).of(-1); name != "" {
		t.Errorf("no process is in container %q", name)
	}
}
