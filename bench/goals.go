package main

import "fmt"

// goal is what the capture is to reach, and what it reached.
type goal struct {
	text   string
	figure string
	met    bool
}

// memoryGoal is the most that a probe may have beside its ring, in bytes.
const memoryGoal = 64 << 20

func goals(r *results) []goal {
	var out []goal
	for i := range scenarios {
		s := &scenarios[i]
		ratios := r.ratios(s, engineMain)
		if !s.goal || len(ratios) == 0 {
			continue
		}
		out = append(out, goal{
			text:   fmt.Sprintf("CPU per packet at %s: not above tcpdump -B 65536", place(s)),
			figure: spread(ratios, "%.2f") + " of it",
			met:    medianOf(ratios) <= 1,
		})
	}
	return append(out, lossGoal(r), memoryGoalOf(r))
}

// lossGoal is that Sonde loses nothing where tcpdump does.
func lossGoal(r *results) goal {
	const text = "no loss at full rate where tcpdump loses"
	places, lossy := 0, ""
	for i := range scenarios {
		s := &scenarios[i]
		worst := 0.0
		for _, peer := range []string{engineMain, "tcpdump"} {
			_, most := bounds(r.each(s.name, peer, (*sample).loss))
			worst = max(worst, most)
		}
		if worst == 0 {
			continue
		}
		places++
		if _, most := bounds(r.each(s.name, engineSonde, (*sample).loss)); most > 0 {
			lossy += fmt.Sprintf("; up to %.2f %% at %s", 100*most, place(s))
		}
	}
	if lossy != "" {
		return goal{text: text, figure: lossy[2:]}
	}
	return goal{text: text, figure: fmt.Sprintf("none, in %d places where tcpdump does", places), met: true}
}

func memoryGoalOf(r *results) goal {
	var worst float64
	for i := range scenarios {
		_, most := bounds(r.each(scenarios[i].name, engineSonde, (*sample).beside))
		worst = max(worst, most)
	}
	return goal{
		text:   fmt.Sprintf("memory beside the ring: below %d MiB", memoryGoal>>20),
		figure: fmt.Sprintf("%.1f MiB at most", worst/(1<<20)),
		met:    worst > 0 && worst < memoryGoal,
	}
}
