package figures

import (
	"fmt"
	"slices"
	"strings"
)

// MachinePage returns the section that describes the machine.
func MachinePage(r *Results) string {
	m := &r.Machine
	return fmt.Sprintf("%s, %d CPUs, %s of memory, %s; disk: %s. %s; %s; %s; Sonde built with %s.\n"+
		"Measured on %s, %d rounds of %s packets; load of the machine before %s, after %s.%s\n",
		m.CPU, m.Cores, gigabytes(m.Memory), m.Kernel, m.Disk, m.Versions["tcpdump"], m.Versions["dumpcap"], m.Versions["netsniff-ng"], m.Go,
		m.Date.Format("2006-01-02"), r.Rounds, thousands(r.PacketsEach), m.Load, m.LoadAfter, map[bool]string{true: " Free page reporting was off meanwhile."}[m.Held])
}

// CapturePage returns the section with the goals and figures of captures.
func CapturePage(r *Results) string {
	var b strings.Builder
	b.WriteString("### Goals\n\n| goal | reached | |\n|---|---|---|\n")
	for _, g := range goals(r) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.text, g.figure, map[bool]string{true: "met", false: "**not met**"}[g.met])
	}
	b.WriteString("\n### CPU time and loss at full rate\n\nns per captured packet: median (least–most); Mpps while a turn lasts.\n\n" +
		"| traffic | engine | total | sender's side | process | bpf / this | afpacket / this | Mpps | lost |\n|---|---|---|---|---|---|---|---|---|\n")
	for i := range Scenarios {
		if s := &Scenarios[i]; !s.Stream() && !s.Misses {
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

// capturing returns the engines that capture.
func capturing() []Engine {
	return slices.DeleteFunc(slices.Clone(Engines), func(e Engine) bool { return e.Name == EngineNone })
}

func costRows(b *strings.Builder, r *Results, s *Scenario) {
	for _, e := range capturing() {
		c := r.costs(s, e.Name)
		if len(c) == 0 {
			continue
		}
		added, process := parts(c)
		fmt.Fprintf(b, "| %s | %s | %s | %.0f | %.0f | %s %.2f | %s |\n", place(s), e.label, spread(totals(c), "%.0f"),
			MedianOf(added), MedianOf(process), ratioCells(r, s, &e), MedianOf(r.Each(s.Name, e.Name, (*Sample).PPS))/1e6,
			lossCell(r, s, &e))
	}
}

// parts returns the two parts of each cost: on the sender's side and in the process.
func parts(c []cost) (added, process []float64) {
	for _, one := range c {
		added, process = append(added, one.added), append(process, one.process)
	}
	return added, process
}

func missTable(b *strings.Builder, r *Results) {
	s := ScenarioByName(ScenarioMiss)
	if len(r.costs(s, EngineMain)) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Traffic that the filter does not match\n\nns per packet of %d bytes, filter `%s`.\n\n"+
		"| engine | total | sender's side | process |\n|---|---|---|---|\n", s.Size, s.Filter)
	for _, e := range Engines {
		c := r.costs(s, e.Name)
		if len(c) == 0 {
			continue
		}
		added, process := parts(c)
		fmt.Fprintf(b, "| %s | %s | %.0f | %.1f |\n", e.label, spread(totals(c), "%.0f"), MedianOf(added), MedianOf(process))
	}
}

// besideTable lists the cost of frames to a namespace that is not captured.
func besideTable(b *strings.Builder, r *Results) {
	var places []*Scenario
	for i := range Scenarios {
		if s := &Scenarios[i]; s.all && len(beside(r, s, EngineNone)) > 0 {
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
	for _, e := range Engines {
		fmt.Fprintf(b, "| %s |", e.label)
		for _, s := range places {
			bare, here := MedianOf(beside(r, s, EngineNone)), beside(r, s, e.Name)
			switch {
			case len(here) == 0:
				b.WriteString(" – |")
			case e.Name == EngineNone:
				fmt.Fprintf(b, " %.0f |", bare)
			default:
				fmt.Fprintf(b, " %.0f (%+.1f %%) |", MedianOf(here), 100*(MedianOf(here)/bare-1))
			}
		}
		b.WriteString("\n")
	}
}

// beside returns the cost of a frame to the namespace that is not captured, in nanoseconds, for each round.
func beside(r *Results, s *Scenario, engine string) []float64 {
	var out []float64
	for _, v := range r.Each(s.Name, engine, func(o *Sample) float64 { return float64(o.Beside.CPU) / float64(max(o.Beside.Frames, 1)) }) {
		if v > 0 {
			out = append(out, v)
		}
	}
	return out
}

func streamTable(b *strings.Builder, r *Results) {
	s := ScenarioByName(ScenarioStream)
	if len(r.costs(s, EngineMain)) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### A TCP stream whose segmentation is left to the link\n\n"+
		"Both ends of the stream share one CPU. Without a capture: %s Gbit/s.\n\n"+
		"| engine | Gbit/s of the stream | ns per captured packet | ns per captured KiB | bpf / this | afpacket / this | lost |\n|---|---|---|---|---|---|---|\n",
		spread(r.Each(s.Name, EngineNone, (*Sample).gigabits), "%.1f"))
	for _, e := range capturing() {
		perKiB := r.perByte(s, e.Name)
		if len(perKiB) == 0 {
			continue
		}
		for i := range perKiB {
			perKiB[i] *= 1024
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s %s |\n", e.label, spread(r.Each(s.Name, e.Name, (*Sample).gigabits), "%.1f"),
			spread(totals(r.costs(s, e.Name)), "%.0f"), spread(perKiB, "%.0f"), ratioCells(r, s, &e), lossCell(r, s, &e))
	}
}

func rateTable(b *strings.Builder, r *Results) {
	if len(r.Rates) == 0 {
		return
	}
	b.WriteString("\n### Highest rate without loss\n\nMpps without pauses, with the filter and the file on the disk; ≥ where the sender was the limit.\n\n| engine |")
	var places []string
	for _, one := range r.Rates {
		if !slices.Contains(places, one.Scenario) {
			places = append(places, one.Scenario)
			fmt.Fprintf(b, " %d B |", ScenarioByName(one.Scenario).Size)
		}
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(places)))
	for _, e := range capturing() {
		fmt.Fprintf(b, "| %s |", e.label)
		for _, p := range places {
			i := slices.IndexFunc(r.Rates, func(o Rate) bool { return o.Scenario == p && o.Engine == e.Name })
			fmt.Fprintf(b, " %s |", rateCell(&r.Rates[i], MedianOf(r.Each(p, e.Name, (*Sample).PPS))))
		}
		b.WriteString("\n")
	}
}

func rateCell(o *Rate, full float64) string {
	switch {
	case o.Bound:
		return fmt.Sprintf("≥ %.2f", o.PPS/1e6)
	case o.PPS == 0:
		return fmt.Sprintf("< %.2f", full/float64(int(1)<<RateSteps)/1e6)
	}
	return fmt.Sprintf("%.2f", o.PPS/1e6)
}

func memoryTable(b *strings.Builder, r *Results) {
	b.WriteString("\n### Memory\n\nMost in any run, resident and in rings and BPF maps, MiB.\n\n| engine | all | rings and maps | beside them |\n|---|---|---|---|\n")
	for _, e := range capturing() {
		var all, ring, beside float64
		for i := range r.Samples {
			if s := &r.Samples[i]; s.Engine == e.Name {
				all, ring, beside = max(all, float64(s.Memory.Peak)), max(ring, float64(s.Memory.Ring)), max(beside, s.beside())
			}
		}
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", e.label, all/(1<<20), ring/(1<<20), beside/(1<<20))
	}
}

func place(s *Scenario) string {
	if s.Disk && !strings.Contains(s.label, "disk") {
		return s.label + ", disk"
	}
	return s.label
}

// ratioCells returns the ratio of each of Sonde's engines to this one.
func ratioCells(r *Results, s *Scenario, e *Engine) string {
	var b strings.Builder
	for _, name := range own {
		if name != e.Name {
			b.WriteString(spread(r.ratios(s, name, e.Name), "%.2f"))
		}
		b.WriteString(" | ")
	}
	return strings.TrimSuffix(b.String(), " ")
}

func lossCell(r *Results, s *Scenario, e *Engine) string {
	v := r.Each(s.Name, e.Name, (*Sample).Loss)
	if _, most := Bounds(v); most == 0 {
		return "0"
	}
	for i := range v {
		v[i] *= 100
	}
	return spread(v, "%.2f") + " %"
}

// spread returns the median, the minimum and the maximum.
func spread(v []float64, format string) string {
	if len(v) == 0 {
		return "–"
	}
	least, most := Bounds(v)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", MedianOf(v), least, most)
}

// thousands returns a number with blanks between groups of three digits.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
