package live

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/table"
)

// plainInterval is the shortest time between two reports of the Pods.
const plainInterval = 2 * time.Second

// Plain writes time-stamped lines for logs and pipes: one for each change of the status, each new note and each change
// of a Pod. Changes of Pods are written at most every two seconds.
type Plain struct {
	mu    sync.Mutex
	w     io.Writer
	clock clock.PassiveClock

	status  string
	notes   map[string]bool
	written map[string]Pod
	last    time.Time // when lines about Pods were last written
	latest  View
}

// NewPlain returns a display on w.
func NewPlain(w io.Writer, c clock.PassiveClock) *Plain {
	return &Plain{w: w, clock: c, notes: map[string]bool{}, written: map[string]Pod{}}
}

// Show writes the changes since the last call. Changes of Pods may be delayed until a later call.
func (p *Plain) Show(v View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = v
	now := p.clock.Now()
	if v.Status != p.status {
		p.status = v.Status
		p.write(now, v.Title+": "+v.Status)
	}
	for _, n := range v.Notes {
		if !p.notes[n] {
			p.notes[n] = true
			p.write(now, n)
		}
	}
	if now.Sub(p.last) >= plainInterval {
		p.pods(now)
	}
}

// PrintLine writes a line.
func (p *Plain) PrintLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(p.clock.Now(), line)
}

// Print writes text to w.
func (p *Plain) Print(w io.Writer, text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// Close writes the delayed changes.
func (p *Plain) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods(p.clock.Now())
}

func (p *Plain) pods(now time.Time) {
	for _, pod := range p.latest.Pods {
		if p.written[pod.Name+"\x00"+pod.Node] == pod {
			continue
		}
		p.written[pod.Name+"\x00"+pod.Node] = pod
		p.write(now, podLine(p.latest.Unit, pod))
		p.last = now
	}
}

func podLine(u Unit, pod Pod) string {
	var b strings.Builder
	b.WriteString(pod.Name)
	if pod.Node != "" {
		b.WriteString(" on " + pod.Node)
	}
	counted := u.Count()
	if pod.Count == 1 {
		counted = strings.TrimSuffix(counted, "s")
	}
	fmt.Fprintf(&b, ": %s, %d %s, %s, %d %s", pod.State, pod.Count, counted, Bytes(pod.Bytes), pod.Lost, u.Lost())
	return b.String()
}

func (p *Plain) write(now time.Time, line string) {
	_, _ = fmt.Fprintf(p.w, "%s %s\n", now.UTC().Format(time.RFC3339), table.Printable(line))
}
