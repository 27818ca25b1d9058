package tc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/sockets"
)

func TestSharedSockets(t *testing.T) {
	found := []namedHolding{
		{Socket: 1, Pid: 7},
		{Socket: 2, Pid: 9},
		{Socket: 2, Pid: 8},
		{Socket: 3, Pid: 7},
	}
	if diff := cmp.Diff(map[uint64][]uint32{2: {8, 9}}, sharedSockets(found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadHoldings(t *testing.T) {
	want := []namedHolding{{Socket: 1, Claim: 2, Container: 3, Pid: 4, Tgid: 5}, {Socket: 6}}
	var b bytes.Buffer
	again := namedHolding{Socket: 1, Claim: 2, Pid: 4, Tgid: 5} // another descriptor of the same socket
	if err := binary.Write(&b, binary.NativeEndian, append(want, again)); err != nil {
		t.Fatal(err)
	}
	got, err := readHoldings(bytes.NewReader(b.Bytes()))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(namedHolding{}, "_")); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := readHoldings(bytes.NewReader(b.Bytes()[:b.Len()-1])); err == nil {
		t.Error("half a line was accepted")
	}
}

// manyHoldings is the output of a scan: descriptors of one process that has so many sockets, in turn. It allocates nothing.
type manyHoldings struct {
	descriptors, sockets int
	next, left           []byte
}

func (m *manyHoldings) Read(b []byte) (int, error) {
	if len(m.left) == 0 {
		if m.descriptors == 0 {
			return 0, io.EOF
		}
		m.descriptors--
		binary.NativeEndian.PutUint64(m.next, uint64(1+m.descriptors%m.sockets))
		m.left = m.next
	}
	n := copy(b, m.left)
	m.left = m.left[n:]
	return n, nil
}

// A process can have millions of descriptors, of one socket or of many.
func TestScanOfManyDescriptorsTakesBoundedMemory(t *testing.T) {
	const descriptors, most = 1 << 21, 24 << 20 // all of them would take 80 MiB
	for name, tc := range map[string]struct {
		sockets, want int
		wantErr       error
	}{
		"one socket":       {sockets: 1, want: 1},
		"as many as fit":   {sockets: maxHoldings, want: maxHoldings},
		"too many sockets": {sockets: maxHoldings + 1, wantErr: errTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			one, err := binary.Append(nil, binary.NativeEndian, namedHolding{Claim: 2, Pid: 4})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			found, err := readHoldings(&manyHoldings{descriptors: descriptors, sockets: tc.sockets, next: one})
			runtime.ReadMemStats(&after)
			if len(found) != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("%d sockets, %v; want %d, %v", len(found), err, tc.want, tc.wantErr)
			}
			taken := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes allocated", taken)
			if taken > most {
				t.Errorf("a scan of %d descriptors allocates %d bytes, at most %d are there", descriptors, taken, most)
			}
		})
	}
}

// A pass counts as seen by scans only when the receiver surely has the socket.
func TestPassesTakeEffectLater(t *testing.T) {
	start := time.Unix(0, 0)
	s := &scanner{}
	for _, step := range []struct {
		at     time.Duration
		passes uint64
		want   uint64
	}{
		{0, 3, 0},
		{passDelay / 2, 5, 0},
		{passDelay, 5, 3},
		{passDelay * 7 / 4, 8, 5},
		{passDelay * 10, 9, 8},
	} {
		if got := s.effective(start.Add(step.at), step.passes); got != step.want {
			t.Errorf("after %v: %d passes, want %d", step.at, got, step.want)
		}
	}
}

// A scan that finds a process after its end, when its files are still open, leaves no record of it: nothing would free that one.
func TestScanOfEndingProcesses(t *testing.T) {
	w := sockets.New(t)
	ns, err := identify(int(w.Target.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPrograms(1<<20, snapLen)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.close() }()
	log := slog.New(slog.DiscardHandler)
	p.processes = processConstants(w.Processes(), ns)
	all, err := backend.Filter(nil, pcapng.LinkTypeEthernet, snapLen)
	if err := errors.Join(err, p.load(pcapng.LinkTypeEthernet, all, log)); err != nil {
		t.Fatal(err)
	}
	objects := p.of[pcapng.LinkTypeEthernet]
	a, err := follow(&backend.Config{Processes: w.Processes(), Log: log}, objects)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.close() }()
	for range 20 {
		program := w.Run(7000, w.Program, "large")
		ended := make(chan struct{})
		go func() {
			_ = program.Process.Kill()
			_ = program.Wait()
			close(ended)
		}()
		scanUntil(t, &a.scans, ended)
		var slot uint32
		if err := objects.Maps[namedMapProcesses].Lookup(uint32(program.Process.Pid), &slot); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("process %d has ended, and has record %d (error %v)", program.Process.Pid, slot, err)
		}
	}
}

// scanUntil scans until a channel is closed.
func scanUntil(t *testing.T, s *scanner, end <-chan struct{}) {
	t.Helper()
	for {
		if err := s.scan(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-end:
			return
		default:
		}
	}
}
