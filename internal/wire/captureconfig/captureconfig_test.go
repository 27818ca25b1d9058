package captureconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

func TestReadsBack(t *testing.T) {
	want := captureconfig.Config{
		Version: 2, UID: "u", Kind: "PacketCapture", Namespace: "ns", Name: "pc", JobID: "qwer",
		Requester: "alice", Target: "Deployment/web", TargetNamespace: "shop", Filter: "udp port 53",
		Programs: map[int32]string{1: "1,6 0 0 262144"}, SnapLength: 96, Interfaces: []string{"eth0"}, MaxBytes: 1 << 30, MaxPackets: 7, RingBytes: 1 << 25,
		Rotate: &captureconfig.Rotate{MaxBytes: 1 << 20, Files: 5}, DiskFloor: &captureconfig.Floor{Percent: 12},
	}
	s, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := captureconfig.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTraceReadsBack(t *testing.T) {
	for name, tc := range map[string]struct {
		version int
		trace   captureconfig.Trace
	}{
		"all":        {3, captureconfig.Trace{Groups: []string{"file", "io"}, Durations: true, MinLatency: 1000, MaxEvents: 7, Flap: true}},
		"containers": {4, captureconfig.Trace{Groups: []string{"file"}, Containers: []string{"web", "log"}}},
		"a command":  {4, captureconfig.Trace{Groups: []string{"file"}, Command: "/usr/sbin/nginx", Children: true}},
	} {
		t.Run(name, func(t *testing.T) {
			want := captureconfig.Config{Version: tc.version, UID: "u", Kind: "Trace", MaxBytes: 1 << 30, RingBytes: 1 << 25, Trace: &tc.trace}
			s, err := want.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			got, err := captureconfig.Parse([]byte(s))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// An old agent with only one engine may run a capture with engine auto, and must refuse one with the engine BPF.
func TestEngineReadsBack(t *testing.T) {
	for engine, version := range map[string]int{"": 1, captureconfig.EngineAFPacket: 1, captureconfig.EngineAuto: 1, captureconfig.EngineBPF: 5} {
		t.Run(engine, func(t *testing.T) {
			want := captureconfig.Config{Version: version, UID: "u", SnapLength: 96, MaxBytes: 1 << 30, RingBytes: 1 << 25, Engine: engine}
			s, err := want.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			got, err := captureconfig.Parse([]byte(s))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// An old agent must refuse a configuration whose packets are to name processes.
func TestProcessesReadBack(t *testing.T) {
	want := captureconfig.Config{Version: 6, UID: "u", SnapLength: 96, MaxBytes: 1 << 30, RingBytes: 1 << 25, Engine: captureconfig.EngineAuto, Processes: true}
	s, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := captureconfig.Parse([]byte(s))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]string{
		"not json":       "{",
		"newer version":  `{"v":9,"snapLength":1,"maxBytes":1,"ringBytes":1}`,
		"no version":     `{"snapLength":1,"maxBytes":1,"ringBytes":1}`,
		"no limit":       `{"v":1,"snapLength":0,"maxBytes":1,"ringBytes":1}`,
		"one file":       `{"v":1,"snapLength":1,"maxBytes":1000000,"ringBytes":1,"rotate":{"maxBytes":65536,"files":1}}`,
		"many files":     `{"v":1,"snapLength":1,"maxBytes":10000000,"ringBytes":1,"rotate":{"maxBytes":65536,"files":17}}`,
		"tiny files":     `{"v":1,"snapLength":1,"maxBytes":1000000,"ringBytes":1,"rotate":{"maxBytes":65535,"files":2}}`,
		"large files":    `{"v":1,"snapLength":1,"maxBytes":131071,"ringBytes":1,"rotate":{"maxBytes":65536,"files":2}}`,
		"nothing traced": `{"v":3,"maxBytes":1,"ringBytes":1,"trace":{"groups":[]}}`,
		"traced ring":    `{"v":3,"maxBytes":200000,"ringBytes":1,"trace":{"groups":["file"]},"rotate":{"maxBytes":65536,"files":2}}`,
		"traced floor":   `{"v":3,"maxBytes":1,"ringBytes":1,"trace":{"groups":["file"]},"diskFloor":{"percent":101}}`,
		"no command":     `{"v":4,"maxBytes":1,"ringBytes":1,"trace":{"groups":["file"],"children":true}}`,
		"no name":        `{"v":4,"maxBytes":1,"ringBytes":1,"trace":{"groups":["file"],"containers":[""]}}`,
		"no engine":      `{"v":5,"snapLength":1,"maxBytes":1,"ringBytes":1,"engine":"xdp"}`,
		"processes":      `{"v":6,"snapLength":1,"maxBytes":1,"ringBytes":1,"engine":"afpacket","processes":true}`,
		"more than all":  `{"v":1,"snapLength":1,"maxBytes":1,"ringBytes":1,"diskFloor":{"percent":101}}`,
		"below nothing":  `{"v":1,"snapLength":1,"maxBytes":1,"ringBytes":1,"diskFloor":{"bytes":-1}}`,
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			if c, err := captureconfig.Parse([]byte(in)); err == nil {
				t.Errorf("Parse = %+v, want an error", c)
			}
		})
	}
}

func TestFloor(t *testing.T) {
	cases := map[string]struct {
		floor captureconfig.Floor
		total uint64
		want  uint64
	}{
		"percent":   {captureconfig.Floor{Percent: 12}, 1000_000, 120_000},
		"bytes":     {captureconfig.Floor{Bytes: 5000}, 1000, 5000},
		"none":      {captureconfig.Floor{}, 1000, 0},
		"very much": {captureconfig.Floor{Percent: 100}, 1 << 63, 1 << 63 / 100 * 100},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.floor.Of(tc.total); got != tc.want {
				t.Errorf("%d of %d, want %d", got, tc.total, tc.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"v":1,"snapLength":1,"maxBytes":1,"ringBytes":1,"programs":{"1":"1,6 0 0 1"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := captureconfig.Parse(b); err == nil && c.SnapLength <= 0 {
			t.Errorf("accepted %+v", c)
		}
	})
}
