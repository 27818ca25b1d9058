package pcapng

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProcessReadsBack(t *testing.T) {
	for name, tc := range map[string]struct {
		process     Process
		wantComment string
	}{
		"a process": {
			Process{PID: 4711, InnerPID: 7, UID: 101, Comm: "nginx", Container: "web"},
			"process: nginx, pid 4711, uid 101, container web",
		},
		"outside of containers": {Process{PID: 1, InnerPID: 1, Comm: "init"}, "process: init, pid 1, uid 0"},
		"no process":            {Process{Reason: ProcessNoReceiver}, "no process: no socket receives it"},
		"unknown":               {Process{Reason: ProcessForked}, "process unknown: the socket's process has forked"},
		"shared":                {Process{Reason: ProcessShared, SharedBy: []uint32{12, 13}}, "process unknown: socket shared by pids 12, 13"},
		"shared by unknown":     {Process{Reason: ProcessShared}, "process unknown: socket shared by several processes"},
		"a later reason":        {Process{Reason: 200}, "process unknown: reason 200"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := AppendInterface(AppendSection(nil, &Section{}), &Interface{LinkType: LinkTypeEthernet})
			stream = AppendPacket(stream, &Packet{Data: []byte("abc"), Length: 3, Comments: []string{tc.process.String()}, Process: &tc.process})
			blocks, _ := readAll(bytes.NewReader(stream))
			got, _ := blocks[len(blocks)-1].(*Packet)
			if got == nil {
				t.Fatalf("read %d blocks, and no packet", len(blocks))
			}
			if diff := cmp.Diff(&tc.process, got.Process); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{tc.wantComment}, got.Comments); diff != "" {
				t.Errorf("comments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProcessOfOthersIsIgnored(t *testing.T) {
	own := appendProcess(nil, &Process{PID: 7})[4:]
	for name, change := range map[string]func(v []byte) []byte{
		"another enterprise": func(v []byte) []byte { v[0]++; return v },
		"another version":    func(v []byte) []byte { v[4]++; return v },
		"too short":          func(v []byte) []byte { return v[:processLen-1] },
	} {
		t.Run(name, func(t *testing.T) {
			stream := AppendInterface(AppendSection(nil, &Section{}), &Interface{LinkType: LinkTypeEthernet})
			start := len(stream)
			stream = append(stream, make([]byte, PacketHeaderLen)...)
			PutPacketHeader(stream[start:], 0, 0, 0, 0)
			opts := len(stream)
			stream = finish(appendOption(stream, optCustomBinary, change(bytes.Clone(own))), start, opts)
			blocks, _ := readAll(bytes.NewReader(stream))
			if p, ok := blocks[len(blocks)-1].(*Packet); !ok || p.Process != nil {
				t.Errorf("read %+v, want a packet without a process", blocks[len(blocks)-1])
			}
		})
	}
}

// The BPF programs have room for MaxProcessLen bytes.
func TestProcessIsBounded(t *testing.T) {
	many := make([]uint32, 100)
	for i := range many {
		many[i] = 1<<32 - 1
	}
	if n := len(AppendProcess(nil, &Process{Reason: ProcessShared, SharedBy: many})); n > MaxProcessLen {
		t.Errorf("%d bytes for a group, at most %d", n, MaxProcessLen)
	}
	for _, r := range ProcessReasons() {
		if n := len(AppendProcess(nil, &Process{Reason: r})); n > MaxProcessLen || r.Name() == "" || r.String() == "" {
			t.Errorf("reason %d: %d bytes, name %q, text %q", r, n, r.Name(), r)
		}
	}
}
