package live

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

func TestLines(t *testing.T) {
	now := time.Unix(1_764_000_001, 0)
	l := &lines{times: map[int][]time.Duration{}}
	for _, line := range []string{"1764000000.750000001\t100", "1764000000.5\t100", "nothing", "1764000000.900000000\t101", "1764000000.900000000\tmany"} {
		l.add(line, now)
	}
	got := l.measured(3)
	if len(got) != 2 || got[0] != 249_999_999 || got[1] != 100*time.Millisecond || l.count(firstSize) != 1 {
		t.Errorf("times %v, want 0.249999999 and 0.1 s", got)
	}
}

func TestNumberBefore(t *testing.T) {
	const text = "12 packets of 10 Pods\n7 packets were left out, because the reader was slow\n"
	for words, want := range map[string]int64{"packets of ": 12, "packets were left out": 7, "earlier packets": 0} {
		if got := numberBefore(text, words); got != want {
			t.Errorf("%d %s, want %d", got, words, want)
		}
	}
}

// A writer's packets have the wanted bytes, and times in their order within the span.
func TestFill(t *testing.T) {
	f, from, parser := &growing{}, time.Unix(1_764_000_000, 0), pcapng.Parser{}
	head := fileHead()
	for len(head) > 0 {
		n, block, err := pcapng.SplitBlocks(head, true)
		if err == nil {
			_, err = parser.Parse(block)
		}
		if err != nil {
			t.Fatal(err)
		}
		head = head[n:]
	}
	const goal = 100_000
	b := f.fill(nil, goal, from, time.Second)
	if int64(len(b)) != f.bytes || f.bytes < goal || f.bytes > goal+2000 {
		t.Errorf("%d bytes, counted as %d, want %d", len(b), f.bytes, goal)
	}
	last, packets := uint64(from.UnixNano()), int64(0)
	for len(b) > 0 {
		n, one, err := pcapng.SplitBlocks(b, true)
		if err != nil || n == 0 {
			t.Fatalf("no whole block: %v", err)
		}
		block, err := parser.Parse(one)
		p, ok := block.(*pcapng.Packet)
		if err != nil || !ok || p.Time < last || p.Time > uint64(from.Add(time.Second).UnixNano()) {
			t.Fatalf("%T %+v, %v", block, p, err)
		}
		last, b = p.Time, b[n:]
		packets++
	}
	if packets != f.packets || len(f.fill(nil, goal, from, time.Second)) != 0 {
		t.Errorf("%d packets, counted as %d; or more than the goal", packets, f.packets)
	}
}
