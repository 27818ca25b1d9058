package figures

import (
	"fmt"
	"strings"
	"time"
)

// interceptGoal bounds a figure: its median over the rounds.
type interceptGoal struct {
	text  string
	each  func(*Intercept) []float64 // for each round
	bound float64
	most  bool // the figure may not be above the bound, instead of not below it
	show  func([]float64) string
}

var interceptGoals = []interceptGoal{
	{
		text: "a stream: at least 8 times the throughput of netstack WireGuard",
		each: func(i *Intercept) []float64 { return i.times(WaySonde, WayWireGuard, (*Streamed).gigabits) }, bound: 8, show: shown("%.1f", " times it"),
	},
	{
		text: "a stream: at least 0.25 of the throughput of a direct connection",
		each: func(i *Intercept) []float64 { return i.times(WaySonde, WayDirect, (*Streamed).gigabits) }, bound: 0.25, show: shown("%.2f", " of it"),
	},
	{
		text: "a stream: CPU time of Sonde's processes for a GB at most 1/8 of netstack WireGuard's",
		each: func(i *Intercept) []float64 { return i.times(WayWireGuard, WaySonde, (*Streamed).secondsPerGB) }, bound: 8, show: fraction,
	},
	{
		text: "a stream through the API server's handler: at least 4 times the throughput of netstack WireGuard",
		each: func(i *Intercept) []float64 { return i.times(WayAPIServer, WayWireGuard, (*Streamed).gigabits) }, bound: 4, show: shown("%.1f", " times it"),
	},
	{
		text: "a request that does not match: p50 longer by at most 1.7 times what a plain splice proxy adds",
		each: func(i *Intercept) []float64 { return eachOf(i.Forwarded, (*Forwarded).added) }, bound: 1.7, most: true, show: shown("%.2f", " times it"),
	},
	{
		text: "memory of Stowaway with 50 clients: at most 256 MiB",
		each: func(i *Intercept) []float64 { return eachOf(i.Held, (*Held).mebibytes) }, bound: 256, most: true, show: shown("%.0f", " MiB"),
	},
}

func shown(format, after string) func([]float64) string {
	return func(v []float64) string { return spread(v, format) + after }
}

// goals returns the goals as far as they were measured.
func (i *Intercept) goals() []goal {
	var out []goal
	for _, g := range interceptGoals {
		if v := g.each(i); len(v) > 0 {
			m := MedianOf(v)
			out = append(out, goal{text: g.text, figure: g.show(v), met: m == g.bound || (m < g.bound) == g.most})
		}
	}
	return out
}

// InterceptPage returns the section with the goals and figures of intercepts.
func InterceptPage(r *Results) string {
	var b strings.Builder
	i, m := &r.Intercept, &r.Machine
	fmt.Fprintf(&b, "%s, %d CPUs, %s; golang.zx2c4.com/wireguard %s; Sonde built with %s. Measured on %s, %d rounds; load of the machine before %s, after %s.\n\n",
		m.CPU, m.Cores, m.Kernel, m.Versions["wireguard"], m.Go, m.Date.Format("2006-01-02"), r.Rounds, i.Load, i.LoadAfter)
	b.WriteString("### Goals of an intercept\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range i.goals() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	wayTable(&b, i)
	forwardedTable(&b, i)
	for n := range i.Held[:min(1, len(i.Held))] {
		fmt.Fprintf(&b, "\n### Memory of Stowaway\n\n%d clients with %d streams each: %s MiB resident at most.\n",
			i.Held[n].Clients, i.Held[n].Streams, spread(eachOf(i.Held, (*Held).mebibytes), "%.0f"))
	}
	return b.String()
}

func wayTable(b *strings.Builder, i *Intercept) {
	b.WriteString("\n### A stream from the developer's machine\n\nMedian (least–most).\n\n" +
		"| way | GiB | Gbit/s | of a direct connection | times WireGuard | CPU s for a GB | of these |\n|---|---|---|---|---|---|---|\n")
	for n := range Ways {
		w := &Ways[n]
		all := i.streams(w.Name)
		if len(all) == 0 {
			continue
		}
		cpu, parts := "", processCells(all)
		if len(parts) > 0 {
			cpu = spread(eachOf(all, (*Streamed).secondsPerGB), "%.2f")
		}
		fmt.Fprintf(b, "| %s | %.2f | %s | %.2f | %.1f | %s | %s |\n", w.Label, float64(all[0].Bytes)/(1<<30), spread(eachOf(all, (*Streamed).gigabits), "%.2f"),
			MedianOf(i.times(w.Name, WayDirect, (*Streamed).gigabits)), MedianOf(i.times(w.Name, WayWireGuard, (*Streamed).gigabits)), cpu, strings.Join(parts, ", "))
	}
}

// processCells returns the median CPU time of each process for a GB.
func processCells(all []Streamed) []string {
	var out []string
	for _, name := range []string{ProcessClient, ProcessStowaway, ProcessCarrier, ProcessSource, ProcessSink, ProcessAPIServer} {
		if _, ok := all[0].CPU[name]; !ok {
			continue
		}
		cell := fmt.Sprintf("%s %.2f", name, MedianOf(eachOf(all, func(s *Streamed) float64 { return float64(s.CPU[name]) / float64(s.Bytes) })))
		if name == ProcessAPIServer {
			cell = "not counted: " + cell
		}
		out = append(out, cell)
	}
	return out
}

func forwardedTable(b *strings.Builder, i *Intercept) {
	if len(i.Forwarded) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### A request that does not match\n\nMedian (least–most) of the rounds' p50 in µs, %s keep-alive requests by each way.\n\n"+
		"| way | p50 | longer by |\n|---|---|---|\n", thousands(i.Forwarded[0].Requests))
	for _, way := range []struct {
		label string
		p50   func(*Forwarded) time.Duration
	}{
		{"the app itself", func(f *Forwarded) time.Duration { return f.Direct }},
		{"plain splice proxy", func(f *Forwarded) time.Duration { return f.Splice }},
		{"Sonde's carrier", func(f *Forwarded) time.Duration { return f.Carrier }},
	} {
		microseconds := func(less func(*Forwarded) time.Duration) string {
			return spread(eachOf(i.Forwarded, func(f *Forwarded) float64 { return float64(way.p50(f)-less(f)) / 1e3 }), "%.1f")
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", way.label, microseconds(func(*Forwarded) time.Duration { return 0 }),
			microseconds(func(f *Forwarded) time.Duration { return f.Direct }))
	}
}
