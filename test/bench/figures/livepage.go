package figures

import (
	"fmt"
	"strings"
)

// Goals of what reads a running capture.
const (
	coresGoal      = 1
	followedMemory = 64  // MiB
	latencyGoal    = 500 // ms
)

// liveGoal bounds a figure: its median over the rounds may not be above the bound.
type liveGoal struct {
	text  string
	each  func(*Live) []float64 // for each round
	bound float64
	show  func([]float64) string
	// exact says that no round may be above the bound.
	exact bool
}

func liveGoals() []liveGoal {
	var out []liveGoal
	for i := range FlowPairs {
		p := &FlowPairs[i]
		out = append(out, liveGoal{
			text: fmt.Sprintf("`spec.processes`: CPU per packet at 64 B, %s: at most %.1f times that without", p.label, p.times),
			each: p.timesMore, bound: p.times, show: shown("%.2f", " times"),
		})
	}
	follow := func(text string, figure func(*Followed) float64, bound float64, show func([]float64) string, exact bool) liveGoal {
		return liveGoal{text: "`follow` of 10 Pods with 50 MB/s in all: " + text, each: func(l *Live) []float64 { return eachOf(l.Followed, figure) }, bound: bound, show: show, exact: exact}
	}
	out = append(
		out,
		follow("each packet is in the stream or counted as left out", (*Followed).silent, 0, func(v []float64) string {
			_, most := Bounds(v)
			return fmt.Sprintf("%.0f packets are not", most)
		}, true),
		follow("CPU time of the plugin within one core", (*Followed).cores, coresGoal, shown("%.2f", " cores"), false),
		follow("memory of the plugin at most 64 MiB, without its program's file", (*Followed).anonymous, followedMemory, shown("%.0f", " MiB"), false),
		follow("the same, with its program's file", (*Followed).resident, followedMemory, shown("%.0f", " MiB"), false),
	)
	for _, name := range []string{wayDefault, wayPipe, wayShort} {
		way := liveWayByName(name)
		out = append(out, liveGoal{
			text: fmt.Sprintf("from a packet on the wire to its line, %s: p50 at most 0.5 s", way.label),
			each: func(l *Live) []float64 { return l.latencies(name, 0.5) }, bound: latencyGoal, show: shown("%.0f", " ms"),
		})
	}
	return out
}

func liveWayByName(name string) *LiveWay {
	for i := range LiveWays {
		if LiveWays[i].Name == name {
			return &LiveWays[i]
		}
	}
	return nil
}

// goals returns the goals as far as they were measured.
func (l *Live) goals() []goal {
	var out []goal
	for _, g := range liveGoals() {
		v := g.each(l)
		if len(v) == 0 {
			continue
		}
		reached := MedianOf(v)
		if g.exact {
			_, reached = Bounds(v)
		}
		out = append(out, goal{text: g.text, figure: g.show(v), met: reached <= g.bound})
	}
	return out
}

// LivePage returns the section with the goals and figures of what reads a running capture.
func LivePage(r *Results) string {
	var b strings.Builder
	m, l := &r.Machine, &r.Live
	fmt.Fprintf(&b, "%s, %d CPUs, %s; %s; Sonde built with %s. Measured on %s, %d rounds; load of the machine before %s, after %s.\n",
		m.CPU, m.Cores, m.Kernel, m.Versions["tshark"], m.Go, m.Date.Format("2006-01-02"), r.Rounds, l.Load, l.LoadAfter)
	b.WriteString("\n### Goals of a live capture\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range l.goals() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	flowTable(&b, l)
	followTable(&b, l)
	latencyTable(&b, l)
	return b.String()
}

func flowTable(b *strings.Builder, l *Live) {
	b.WriteString("\n### Packets that name their process\n\nns per captured packet of 64 bytes: median (least–most).\n\n" +
		"| traffic | `processes` | total | sender's side | process | bytes in the file |\n|---|---|---|---|---|---|\n")
	for i := range FlowPairs {
		p := &FlowPairs[i]
		for _, s := range []*Scenario{&p.Off, &p.On} {
			c := l.costs(s)
			if len(c) == 0 {
				continue
			}
			added, process := parts(c)
			each := (&Results{Samples: l.Flows}).Each(s.Name, EngineBPF, func(o *Sample) float64 { return float64(o.File) / float64(max(o.Captured, 1)) })
			fmt.Fprintf(b, "| %s | %s | %s | %.0f | %.0f | %.0f |\n", p.label, map[bool]string{true: "on", false: "off"}[s.Processes],
				spread(totals(c), "%.0f"), MedianOf(added), MedianOf(process), MedianOf(each))
		}
	}
}

func followTable(b *strings.Builder, l *Live) {
	if len(l.Followed) == 0 {
		return
	}
	var written, left, late int64
	for i := range l.Followed {
		f := &l.Followed[i]
		written, left, late = written+f.Written, left+f.Left, late+f.Late
	}
	fmt.Fprintf(b, "\n### A stream of %d Pods\n\nOf %s packets in all rounds, %s were left out of the stream and counted, and %s came out of order.\n\n"+
		"| what | median (least–most) |\n|---|---|\n", l.Followed[0].Pods, thousands(int(written)), thousands(int(left)), thousands(int(late)))
	for _, row := range []struct {
		label, format string
		figure        func(*Followed) float64
	}{
		{"MB/s", "%.1f", (*Followed).rate},
		{"CPU time of the plugin, cores", "%.2f", (*Followed).cores},
		{"most anonymous memory of the plugin (RssAnon), MiB", "%.1f", (*Followed).anonymous},
		{"most resident memory of the plugin, with its program's file (VmHWM), MiB", "%.1f", (*Followed).resident},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row.label, spread(eachOf(l.Followed, row.figure), row.format))
	}
}

func latencyTable(b *strings.Builder, l *Live) {
	if len(l.Latencies) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### From a packet on the wire to its line\n\nms: median (least–most) of the rounds, %d packets by each way in a round.\n\n"+
		"| way | p50 | p95 |\n|---|---|---|\n", len(l.Latencies[0].Times))
	for i := range LiveWays {
		w := &LiveWays[i]
		fmt.Fprintf(b, "| %s | %s | %s |\n", w.label, spread(l.latencies(w.Name, 0.5), "%.0f"), spread(l.latencies(w.Name, 0.95), "%.0f"))
	}
}
