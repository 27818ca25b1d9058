package capture

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// frame is a frame of the flood, or with a negative number, another packet.
func frame(n int) []byte {
	b := newFrame(100)
	if n < 0 {
		b[6] = 6
		return b
	}
	binary.LittleEndian.PutUint32(b[numberOffset:], uint32(n))
	return b
}

func pcapngFile(numbers ...int) []byte {
	b := pcapng.AppendSection(nil, &pcapng.Section{})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: host.TargetLink, LinkType: pcapng.LinkTypeEthernet, SnapLen: 100})
	for _, n := range numbers {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Data: frame(n), Length: 100})
	}
	return b
}

func pcapFile(numbers ...int) []byte {
	b := make([]byte, 24)
	binary.LittleEndian.PutUint32(b, 0xa1b2c3d4)
	for _, n := range numbers {
		header := make([]byte, 16)
		binary.LittleEndian.PutUint32(header[8:], 100)
		b = append(append(b, header...), frame(n)...)
	}
	return b
}

func TestCheckCountsFrames(t *testing.T) {
	numbers := []int{0, 1, -1, 3, 4, 5}
	want := content{numbered: 3, pushed: 2, others: 1}
	for name, file := range map[string][]byte{"pcap": pcapFile(numbers...), "pcapng": pcapngFile(numbers...)} {
		t.Run(name, func(t *testing.T) {
			want.size = int64(len(file))
			got, err := parse(file, 4)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(content{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	cases := map[string]struct {
		file        []byte
		wantDamaged bool
	}{
		"nothing":                {nil, true},
		"another format":         {make([]byte, 100), true},
		"a cut pcap":             {cut(pcapFile(1, 2)), true},
		"a cut pcapng":           {cut(pcapngFile(1, 2)), true},
		"a frame twice":          {pcapFile(1, 2, 1), false},
		"a frame twice, pcapng":  {pcapngFile(3, 3), false},
		"a length beyond a file": {grown(pcapngFile(1)), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.file, 4)
			if err == nil || errors.Is(err, errDamaged) != tc.wantDamaged {
				t.Errorf("error %v, want one about damage: %v", err, tc.wantDamaged)
			}
		})
	}
}

func cut(b []byte) []byte { return b[:len(b)-4] }

// grown makes a packet longer than its block.
func grown(b []byte) []byte {
	at := len(pcapngFile())
	binary.LittleEndian.PutUint32(b[at+20:], 1000)
	return b
}

func FuzzParse(f *testing.F) {
	f.Add(pcapFile(1, -1))
	f.Add(pcapngFile(1, -1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parse(b, 4); err == nil && c.numbered > 4 {
			t.Errorf("%+v of 4 frames", c)
		}
	})
}
