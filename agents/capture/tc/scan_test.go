package tc

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSharedSockets(t *testing.T) {
	found := []namedHolding{
		{Socket: 1, Pid: 7},
		{Socket: 1, Pid: 7}, // two descriptors of one process
		{Socket: 2, Pid: 9},
		{Socket: 2, Pid: 8},
		{Socket: 2, Pid: 9},
		{Socket: 3, Pid: 7},
	}
	if diff := cmp.Diff(map[uint64][]uint32{2: {8, 9}}, sharedSockets(found)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadHoldings(t *testing.T) {
	want := []namedHolding{{Socket: 1, Claim: 2, Container: 3, Pid: 4, Tgid: 5}, {Socket: 6}}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, want); err != nil {
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
