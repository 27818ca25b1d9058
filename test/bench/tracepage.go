package main

import (
	"fmt"
	"strings"
)

// tracePage is the section with the goals and the figures of traces.
func tracePage(r *results) string {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "%s, %d CPUs, %s; %s; %s; Sonde built with %s. Measured on %s, %d rounds of %s turns of the first loop and %s of the second; "+
		"load of the machine before %s, after %s.\n\n",
		m.CPU, m.Cores, m.Kernel, m.Versions["bpftrace"], m.Versions["strace"], m.Go, m.Date.Format("2006-01-02"), r.Rounds,
		thousands(r.Turns*loops[0].times), thousands(r.Turns*loops[1].times), r.TraceLoad, r.TraceLoadAfter)
	b.WriteString("### Goals of a trace\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range traceGoals(r) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	for i := range loops {
		traceTable(&b, r, &loops[i])
	}
	bystanderTable(&b, r)
	traceRateTable(&b, r)
	traceMemoryTable(&b, r)
	return b.String()
}

func traceTable(b *strings.Builder, r *results, l *loop) {
	var bare []float64
	for i := range r.Traces {
		if t := &r.Traces[i]; t.Loop == l.name {
			bare = append(bare, t.Bare)
		}
	}
	if len(bare) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### A process that is traced: %s\n\nWithout a tracer a turn takes %s ns. Traced: %s. ns: median (least–most).\n\n"+
		"| tracer | a turn takes longer by | for each traced call | of bpftrace's | reader's CPU for an event | of bpftrace's | million events/s | lost |\n"+
		"|---|---|---|---|---|---|---|---|\n", l.label, spread(bare, "%.0f"), strings.Join(l.asked, ", "))
	for i := range tracers {
		t := &tracers[i]
		each := func(figure func(*traced) float64) []float64 { return r.eachTraced(l.name, t.name, false, figure) }
		if len(each((*traced).added)) == 0 {
			continue
		}
		lost := each((*traced).loss)
		cell := "0"
		if _, most := bounds(lost); most > 0 {
			for i := range lost {
				lost[i] *= 100
			}
			cell = spread(lost, "%.2f") + " %"
		}
		fmt.Fprintf(b, "| %s | %s | %.0f | %s | %s | %s | %.2f | %s |\n", t.label, spread(each((*traced).added), "%.0f"),
			medianOf(each((*traced).addedEach)), fractionCell(r, l, t, (*traced).addedEach), spread(each((*traced).readerEach), "%.0f"),
			fractionCell(r, l, t, (*traced).readerEach), medianOf(each((*traced).events))/1e6, cell)
	}
}

func fractionCell(r *results, l *loop, t *tracer, figure func(*traced) float64) string {
	v := r.timesLess(l.name, t.name, tracerMain, figure)
	if !ours(t.name) || len(v) == 0 {
		return ""
	}
	return strings.TrimSuffix(fraction(v), " of it")
}

func bystanderTable(b *strings.Builder, r *results) {
	var rows strings.Builder
	for i := range tracers {
		var cells []string
		for j := range loops {
			if v := r.eachTraced(loops[j].name, tracers[i].name, true, (*traced).addedEach); len(v) > 0 {
				cells = append(cells, spread(v, "%.0f"))
			}
		}
		if len(cells) > 0 {
			fmt.Fprintf(&rows, "| %s | %s |\n", tracers[i].label, strings.Join(cells, " | "))
		}
	}
	if rows.Len() == 0 {
		return
	}
	b.WriteString("\n### A process of the node that is not traced\n\nWhile a Pod is traced, ns added to each of its calls.\n\n| tracer |")
	columns := 0
	for i := range loops {
		if len(r.eachTraced(loops[i].name, tracerSonde, true, (*traced).addedEach)) > 0 {
			fmt.Fprintf(b, " %s |", loops[i].label)
			columns++
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", columns) + "\n" + rows.String())
}

func traceRateTable(b *strings.Builder, r *results) {
	if len(r.TraceRates) == 0 {
		return
	}
	b.WriteString("\n### Highest rate of events without loss\n\nTwo loops that read a byte, one on each of two CPUs, and the tracer beside them on either.\n\n" +
		"| tracer | events per second |\n|---|---|\n")
	for i := range r.TraceRates {
		o := &r.TraceRates[i]
		fmt.Fprintf(b, "| %s | %s |\n", tracerByName(o.Tracer).label, traceRateCell(o))
	}
}

func traceRateCell(o *traceRate) string {
	switch {
	case o.Bound:
		return fmt.Sprintf("≥ %.2f million; the loops could do no more", o.Rate/1e6)
	case o.Rate == 0:
		return fmt.Sprintf("none that was tried; lost some at %.3f million", o.Lossy/1e6)
	case o.Lossy <= o.Rate: // now and then
		return fmt.Sprintf("%.2f million", o.Rate/1e6)
	}
	return fmt.Sprintf("%.2f million; lost some at %.2f million", o.Rate/1e6, o.Lossy/1e6)
}

func traceMemoryTable(b *strings.Builder, r *results) {
	b.WriteString("\n### Memory of a tracer\n\nMost in any run, MiB: what was resident, and what its BPF maps, programs and rings take.\n\n" +
		"| tracer | all | maps, programs and rings | beside them |\n|---|---|---|---|\n")
	for i := range tracers {
		var all, ring, beside int64
		for _, t := range r.Traces {
			if t.Tracer == tracers[i].name {
				all, ring, beside = max(all, t.Memory.Peak), max(ring, t.Memory.Ring), max(beside, t.Memory.Peak-t.Memory.Ring)
			}
		}
		if all > 0 {
			fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", tracers[i].label, float64(all)/(1<<20), float64(ring)/(1<<20), float64(beside)/(1<<20))
		}
	}
}
