package main

import (
	"fmt"
	"slices"
	"strings"
)

// machinePage is the section that describes the machine.
func machinePage(r *results) string {
	m := &r.Machine
	return fmt.Sprintf("%s, %d CPUs, %s of memory, %s; disk: %s. %s; %s; %s; Sonde built with %s.\n"+
		"Measured on %s, %d rounds of %s packets; load of the machine before %s, after %s.%s\n",
		m.CPU, m.Cores, gigabytes(m.Memory), m.Kernel, m.Disk, m.Versions["tcpdump"], m.Versions["dumpcap"], m.Versions["netsniff-ng"], m.Go,
		m.Date.Format("2006-01-02"), r.Rounds, thousands(r.PacketsEach), m.Load, m.LoadAfter, map[bool]string{true: " Free page reporting was off meanwhile."}[m.Held])
}

// capturePage is the section with the goals and the figures.
func capturePage(r *results) string {
	var b strings.Builder
	b.WriteString("### Goals\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range goals(r) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	b.WriteString("\n### CPU time and loss at full rate\n\nns per captured packet: median (least–most); Mpps while a turn lasts.\n\n" +
		"| traffic | engine | total | sender's side | process | bpf / this | afpacket / this | Mpps | lost |\n|---|---|---|---|---|---|---|---|---|\n")
	for i := range scenarios {
		if s := &scenarios[i]; !s.stream() && !s.misses {
			costRows(&b, r, s)
		}
	}
	missTable(&b, r)
	besideTable(&b, r)
	streamTable(&b, r)
	rateTable(&b, r)
	memoryTable(&b, r)
	return b.String()
}

// capturing are the engines that capture.
func capturing() []engine {
	return slices.DeleteFunc(slices.Clone(engines), func(e engine) bool { return e.start == nil })
}

func costRows(b *strings.Builder, r *results, s *scenario) {
	for _, e := range capturing() {
		c := r.costs(s, e.name)
		if len(c) == 0 {
			continue
		}
		added, process := parts(c)
		fmt.Fprintf(b, "| %s | %s | %s | %.0f | %.0f | %s %.2f | %s |\n", place(s), e.label, spread(totals(c), "%.0f"),
			medianOf(added), medianOf(process), ratioCells(r, s, &e), medianOf(r.each(s.name, e.name, (*sample).pps))/1e6,
			lossCell(r, s, &e))
	}
}

// parts are the sender's side and the process's of each cost.
func parts(c []cost) (added, process []float64) {
	for _, one := range c {
		added, process = append(added, one.added), append(process, one.process)
	}
	return added, process
}

func missTable(b *strings.Builder, r *results) {
	s := scenarioByName(scenarioMiss)
	if len(r.costs(s, engineMain)) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Traffic that the filter does not match\n\nns per packet of %d bytes, filter `%s`.\n\n"+
		"| engine | total | sender's side | process |\n|---|---|---|---|\n", s.size, s.filter)
	for _, e := range engines {
		c := r.costs(s, e.name)
		if len(c) == 0 {
			continue
		}
		added, process := parts(c)
		fmt.Fprintf(b, "| %s | %s | %.0f | %.1f |\n", e.label, spread(totals(c), "%.0f"), medianOf(added), medianOf(process))
	}
}

// besideTable is what a frame costs that goes to another namespace than the one that is captured.
func besideTable(b *strings.Builder, r *results) {
	var places []*scenario
	for i := range scenarios {
		if s := &scenarios[i]; s.all && len(beside(r, s, engineNone)) > 0 {
			places = append(places, s)
		}
	}
	if len(places) == 0 {
		return
	}
	b.WriteString("\n### Traffic of others\n\nns for a frame beside the captured ones, which the sender's side above is less by, and how much more that is than without a capture.\n\n| engine |")
	for _, s := range places {
		fmt.Fprintf(b, " %s |", place(s))
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(places)))
	for _, e := range engines {
		fmt.Fprintf(b, "| %s |", e.label)
		for _, s := range places {
			bare, here := medianOf(beside(r, s, engineNone)), beside(r, s, e.name)
			switch {
			case len(here) == 0:
				b.WriteString(" – |")
			case e.name == engineNone:
				fmt.Fprintf(b, " %.0f |", bare)
			default:
				fmt.Fprintf(b, " %.0f (%+.1f %%) |", medianOf(here), 100*(medianOf(here)/bare-1))
			}
		}
		b.WriteString("\n")
	}
}

// beside is what a frame took that was sent beside an engine's, in nanoseconds, in each round.
func beside(r *results, s *scenario, engine string) []float64 {
	var out []float64
	for _, v := range r.each(s.name, engine, func(o *sample) float64 { return float64(o.Beside.CPU) / float64(max(o.Beside.Frames, 1)) }) {
		if v > 0 {
			out = append(out, v)
		}
	}
	return out
}

func streamTable(b *strings.Builder, r *results) {
	s := scenarioByName(scenarioStream)
	if len(r.costs(s, engineMain)) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### A TCP stream whose segmentation is left to the link\n\n"+
		"Both ends of the stream share one CPU. Without a capture: %s Gbit/s.\n\n"+
		"| engine | Gbit/s of the stream | ns per captured packet | ns per captured KiB | bpf / this | afpacket / this | lost |\n|---|---|---|---|---|---|---|\n",
		spread(r.each(s.name, engineNone, (*sample).gigabits), "%.1f"))
	for _, e := range capturing() {
		perKiB := r.perByte(s, e.name)
		if len(perKiB) == 0 {
			continue
		}
		for i := range perKiB {
			perKiB[i] *= 1024
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s %s |\n", e.label, spread(r.each(s.name, e.name, (*sample).gigabits), "%.1f"),
			spread(totals(r.costs(s, e.name)), "%.0f"), spread(perKiB, "%.0f"), ratioCells(r, s, &e), lossCell(r, s, &e))
	}
}

func rateTable(b *strings.Builder, r *results) {
	if len(r.Rates) == 0 {
		return
	}
	b.WriteString("\n### Highest rate without loss\n\nMpps without pauses, with the filter and the file on the disk; ≥ where the sender was the limit.\n\n| engine |")
	var places []string
	for _, one := range r.Rates {
		if !slices.Contains(places, one.Scenario) {
			places = append(places, one.Scenario)
			fmt.Fprintf(b, " %d B |", scenarioByName(one.Scenario).size)
		}
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(places)))
	for _, e := range capturing() {
		fmt.Fprintf(b, "| %s |", e.label)
		for _, p := range places {
			i := slices.IndexFunc(r.Rates, func(o rate) bool { return o.Scenario == p && o.Engine == e.name })
			fmt.Fprintf(b, " %s |", rateCell(&r.Rates[i], medianOf(r.each(p, e.name, (*sample).pps))))
		}
		b.WriteString("\n")
	}
}

func rateCell(o *rate, full float64) string {
	switch {
	case o.Bound:
		return fmt.Sprintf("≥ %.2f", o.PPS/1e6)
	case o.PPS == 0:
		return fmt.Sprintf("< %.2f", full/float64(int(1)<<rateSteps)/1e6)
	}
	return fmt.Sprintf("%.2f", o.PPS/1e6)
}

func memoryTable(b *strings.Builder, r *results) {
	b.WriteString("\n### Memory\n\nMost in any run, resident and in rings and BPF maps, MiB.\n\n| engine | all | rings and maps | beside them |\n|---|---|---|---|\n")
	for _, e := range capturing() {
		var all, ring, beside float64
		for i := range r.Samples {
			if s := &r.Samples[i]; s.Engine == e.name {
				all, ring, beside = max(all, float64(s.Memory.Peak)), max(ring, float64(s.Memory.Ring)), max(beside, s.beside())
			}
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", e.label, all/(1<<20), ring/(1<<20), beside/(1<<20))
	}
}

func place(s *scenario) string {
	if s.disk && !strings.Contains(s.label, "disk") {
		return s.label + ", disk"
	}
	return s.label
}

// ratioCells are what each engine of Sonde's takes of this one.
func ratioCells(r *results, s *scenario, e *engine) string {
	var b strings.Builder
	for _, name := range own {
		if name != e.name {
			b.WriteString(spread(r.ratios(s, name, e.name), "%.2f"))
		}
		b.WriteString(" | ")
	}
	return strings.TrimSuffix(b.String(), " ")
}

func lossCell(r *results, s *scenario, e *engine) string {
	v := r.each(s.name, e.name, (*sample).loss)
	if _, most := bounds(v); most == 0 {
		return "0"
	}
	for i := range v {
		v[i] *= 100
	}
	return spread(v, "%.2f") + " %"
}

// spread is the median with the least and the most.
func spread(v []float64, format string) string {
	if len(v) == 0 {
		return "–"
	}
	least, most := bounds(v)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", medianOf(v), least, most)
}

// thousands writes a count with blanks.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
