package nodereport

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Text is the report for people: what follows, then why.
func (r *Report) Text() string {
	var b strings.Builder
	title := "this node"
	if r.Node != "" {
		title = r.Node
	}
	fmt.Fprintf(&b, "%s: Linux %s, %s, %d CPUs, %s of memory (%s available), cgroup %s\n\n",
		plain(title), plain(r.Kernel), plain(r.Arch), r.CPUs, gib(r.Memory), gib(r.Available), plain(r.Cgroup))
	table(&b, [3]string{"SONDE", "WORKS", "BECAUSE"}, len(r.Conclusions), func(i int) [3]string {
		c := r.Conclusions[i]
		return [3]string{c.Part, yes(c.Works), c.Because}
	})
	b.WriteByte('\n')
	table(&b, [3]string{"THE KERNEL HAS", "", "FOR"}, len(r.Checks), func(i int) [3]string {
		c := r.Checks[i]
		what := about[c.Name]
		if what == "" {
			what = string(c.Name)
		}
		follows := cmp.Or(strings.Join(NeededBy(c.Name), ", "), adds[c.Name], nothingNeeds)
		if !c.Works && c.Why != "" {
			follows += " (" + c.Why + ")"
		}
		return [3]string{what, yes(c.Works), follows}
	})
	if len(r.Settings) > 0 {
		b.WriteByte('\n')
		table(&b, [3]string{"SETTING", "VALUE", "MEANS"}, len(r.Settings), func(i int) [3]string {
			s := r.Settings[i]
			return [3]string{s.Name, s.Value, s.Meaning}
		})
	}
	return b.String()
}

func table(b *strings.Builder, head [3]string, n int, row func(int) [3]string) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(cells [3]string) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", plain(cells[0]), plain(cells[1]), plain(cells[2]))
	}
	line(head)
	for i := range n {
		line(row(i))
	}
	_ = w.Flush() // a strings.Builder takes everything
	for l := range strings.Lines(out.String()) {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
}

func yes(works bool) string {
	if works {
		return "yes"
	}
	return "no"
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// plain takes out what would move the cursor: the text comes from a node.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
