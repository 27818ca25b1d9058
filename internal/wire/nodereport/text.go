package nodereport

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/table"
)

// Text is the report as tables: the conclusions, then the checks and settings.
func (r *Report) Text() string { return r.heading() + "\n" + r.tables() }

// Texts are the reports of several nodes. Nodes that differ only in their headings share their tables.
func Texts(reports []*Report) string {
	var order []string
	headings := map[string]string{}
	for _, r := range reports {
		tables := r.tables()
		if headings[tables] == "" {
			order = append(order, tables)
		}
		headings[tables] += r.heading()
	}
	for i, tables := range order {
		order[i] = headings[tables] + "\n" + tables
	}
	return strings.Join(order, "\n")
}

func (r *Report) heading() string {
	return fmt.Sprintf("%s: Linux %s, %s, %d CPUs, %s of memory (%s available), cgroup %s\n",
		table.Printable(cmp.Or(r.Node, "this node")), table.Printable(r.Kernel), table.Printable(r.Arch), r.CPUs, gib(r.Memory), gib(r.Available), table.Printable(r.Cgroup))
}

func (r *Report) tables() string {
	var b strings.Builder
	rows := [][]string{{"SONDE", "WORKS", "BECAUSE"}}
	for _, c := range r.Conclusions {
		rows = append(rows, []string{c.Part, yes(c.Works), c.Because})
	}
	b.WriteString(table.Text("lll", rows) + "\n")
	rows = [][]string{{"THE KERNEL HAS", "", "FOR"}}
	for _, c := range r.Checks {
		neededBy := cmp.Or(strings.Join(NeededBy(c.Name), ", "), extras[c.Name], unused)
		if !c.Works && c.Why != "" {
			neededBy += " (" + c.Why + ")"
		}
		rows = append(rows, []string{cmp.Or(descriptions[c.Name], string(c.Name)), yes(c.Works), neededBy})
	}
	b.WriteString(table.Text("lll", rows))
	if len(r.Settings) > 0 {
		rows = [][]string{{"SETTING", "VALUE", "MEANS"}}
		for _, s := range r.Settings {
			rows = append(rows, []string{s.Name, s.Value, s.Meaning})
		}
		b.WriteString("\n" + table.Text("lll", rows))
	}
	return b.String()
}

func yes(works bool) string {
	if works {
		return "yes"
	}
	return "no"
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
