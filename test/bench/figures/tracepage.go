package figures

import (
	"fmt"
	"strings"
)

// TracePage returns the section with the goals and figures of traces.
func TracePage(r *Results) string {
	var b strings.Builder
	m := &r.Machine
	fmt.Fprintf(&b, "%s, %d CPUs, %s; %s; %s; Sonde built with %s. Measured on %s, %d rounds of %s turns of the first loop and %s of the second; "+
		"load of the machine before %s, after %s.\n\n",
		m.CPU, m.Cores, m.Kernel, m.Versions["bpftrace"], m.Versions["strace"], m.Go, m.Date.Format("2006-01-02"), r.Rounds,
		thousands(r.Turns*Loops[0].Times), thousands(r.Turns*Loops[1].Times), r.TraceLoad, r.TraceLoadAfter)
	b.WriteString("### Goals of a trace\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range traceGoals(r) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	for i := range Loops {
		traceTable(&b, r, &Loops[i])
	}
	bystanderTable(&b, r)
	traceRateTable(&b, r)
	traceMemoryTable(&b, r)
	return b.String()
}

func traceTable(b *strings.Builder, r *Results, l *Loop) {
	var bare []float64
	for i := range r.Traces {
		if t := &r.Traces[i]; t.Loop == l.Name {
			bare = append(bare, t.Bare)
		}
	}
	if len(bare) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### A process that is traced: %s\n\nWithout a tracer a turn takes %s ns. Traced: %s. ns: median (least–most).\n\n"+
		"| tracer | a turn takes longer by | for each traced call | of bpftrace's | reader's CPU for an event | of bpftrace's | million events/s | lost |\n"+
		"|---|---|---|---|---|---|---|---|\n", l.Label, spread(bare, "%.0f"), strings.Join(l.Asked, ", "))
	for i := range Tracers {
		t := &Tracers[i]
		each := func(figure func(*Traced) float64) []float64 { return r.eachTraced(l.Name, t.Name, false, figure) }
		if len(each((*Traced).added)) == 0 {
			continue
		}
		lost := each((*Traced).loss)
		cell := "0"
		if _, most := Bounds(lost); most > 0 {
			for i := range lost {
				lost[i] *= 100
			}
			cell = spread(lost, "%.2f") + " %"
		}
		fmt.Fprintf(b, "| %s | %s | %.0f | %s | %s | %s | %.2f | %s |\n", t.Label, spread(each((*Traced).added), "%.0f"),
			MedianOf(each((*Traced).addedEach)), fractionCell(r, l, t, (*Traced).addedEach), spread(each((*Traced).readerEach), "%.0f"),
			fractionCell(r, l, t, (*Traced).readerEach), MedianOf(each((*Traced).events))/1e6, cell)
	}
}

func fractionCell(r *Results, l *Loop, t *Tracer, figure func(*Traced) float64) string {
	v := r.timesLess(l.Name, t.Name, TracerMain, figure)
	if !Ours(t.Name) || len(v) == 0 {
		return ""
	}
	return strings.TrimSuffix(fraction(v), " of it")
}

func bystanderTable(b *strings.Builder, r *Results) {
	var rows strings.Builder
	for i := range Tracers {
		var cells []string
		for j := range Loops {
			if v := r.eachTraced(Loops[j].Name, Tracers[i].Name, true, (*Traced).addedEach); len(v) > 0 {
				cells = append(cells, spread(v, "%.0f"))
			}
		}
		if len(cells) > 0 {
			fmt.Fprintf(&rows, "| %s | %s |\n", Tracers[i].Label, strings.Join(cells, " | "))
		}
	}
	if rows.Len() == 0 {
		return
	}
	b.WriteString("\n### A process of the node that is not traced\n\nWhile a Pod is traced, ns added to each of its calls.\n\n| tracer |")
	columns := 0
	for i := range Loops {
		if len(r.eachTraced(Loops[i].Name, TracerSonde, true, (*Traced).addedEach)) > 0 {
			fmt.Fprintf(b, " %s |", Loops[i].Label)
			columns++
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", columns) + "\n" + rows.String())
}

func traceRateTable(b *strings.Builder, r *Results) {
	if len(r.TraceRates) == 0 {
		return
	}
	b.WriteString("\n### Highest rate of events without loss\n\nTwo loops that read a byte, one on each of two CPUs, and the tracer beside them on either.\n\n" +
		"| tracer | events per second |\n|---|---|\n")
	for i := range r.TraceRates {
		o := &r.TraceRates[i]
		fmt.Fprintf(b, "| %s | %s |\n", TracerByName(o.Tracer).Label, traceRateCell(o))
	}
}

func traceRateCell(o *TraceRate) string {
	switch {
	case o.Bound:
		return fmt.Sprintf("≥ %.2f million; the loops could do no more", o.Rate/1e6)
	case o.Rate == 0:
		return fmt.Sprintf("none that was tried; lost some at %.3f million", o.Lossy/1e6)
	case o.Lossy <= o.Rate: // it sometimes lost events
		return fmt.Sprintf("%.2f million", o.Rate/1e6)
	}
	return fmt.Sprintf("%.2f million; lost some at %.2f million", o.Rate/1e6, o.Lossy/1e6)
}

func traceMemoryTable(b *strings.Builder, r *Results) {
	b.WriteString("\n### Memory of a tracer\n\nMost in any run, MiB: what was resident, and what its BPF maps, programs and rings take.\n\n" +
		"| tracer | all | maps, programs and rings | beside them |\n|---|---|---|---|\n")
	for i := range Tracers {
		var all, ring, beside int64
		for _, t := range r.Traces {
			if t.Tracer == Tracers[i].Name {
				all, ring, beside = max(all, t.Memory.Peak), max(ring, t.Memory.Ring), max(beside, t.Memory.Peak-t.Memory.Ring)
			}
		}
		if all > 0 {
			fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", Tracers[i].Label, float64(all)/(1<<20), float64(ring)/(1<<20), float64(beside)/(1<<20))
		}
	}
}
