package traceview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// callCount adds up the calls of one name.
type callCount struct {
	name                    string
	count, failed, measured uint64
	total, longest          time.Duration
}

type callTable struct {
	calls map[string]*callCount
	other uint64
}

func (t *callTable) add(r *tracefmt.Record) {
	c := t.calls[r.Call]
	if c == nil {
		if len(t.calls) >= maxCalls {
			t.other++
			return
		}
		c = &callCount{name: r.Call}
		t.calls[r.Call] = c
	}
	c.count++
	if Failed(r) {
		c.failed++
	}
	if r.Took >= 0 {
		c.measured++
		c.total += r.Took
		c.longest = max(c.longest, r.Took)
	}
}

func (t *callTable) text(b *strings.Builder) {
	if len(t.calls) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Values(t.calls), func(a, b *callCount) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(b.count, a.count), cmp.Compare(a.name, b.name))
	})
	b.WriteString("\nCalls, by time:\n")
	rows := [][]string{{"COUNT", "FAILED", "TIME", "MEAN", "LONGEST", "CALL"}}
	for _, c := range all[:min(callRows, len(all))] {
		row := []string{number(c.count), number(c.failed), "", "", "", c.name}
		if c.measured > 0 {
			row[2], row[3], row[4] = formatDuration(c.total), formatDuration(c.total/time.Duration(c.measured)), formatDuration(c.longest)
		}
		rows = append(rows, row)
	}
	b.WriteString(table.Text("rrrrrl", rows))
	writeOmitted(b, len(all)-callRows, "name of a call", "names of calls", t.other, "calls with other names")
}

// fileCount adds up the calls on one file.
type fileCount struct {
	path          string
	calls         uint64
	time          time.Duration
	read, written uint64
}

type fileTable struct {
	files map[string]*fileCount
	other uint64
}

// Calls whose result is a number of bytes read from their path, or written to it, as sameCall names them.
var (
	reads  = nameSet("read", "pread64", "readv", "preadv", "preadv2", "splice", "copy_file_range", "recvfrom", "recvmsg")
	writes = nameSet("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "sendto", "sendmsg")
)

func nameSet(names ...string) map[string]bool {
	s := map[string]bool{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

func (t *fileTable) add(r *tracefmt.Record) {
	if len(r.Path) == 0 {
		return
	}
	path := r.Path[:min(maxText, len(r.Path))]
	f := t.files[string(path)]
	if f == nil {
		if len(t.files) >= maxFiles {
			t.other++
			return
		}
		f = &fileCount{path: string(path)}
		t.files[f.path] = f
	}
	f.calls++
	f.time += max(r.Took, 0)
	if r.Ret > 0 {
		switch {
		case reads[sameCall(r.Call)]:
			f.read += uint64(r.Ret)
		case writes[sameCall(r.Call)]:
			f.written += uint64(r.Ret)
		}
	}
}

func (t *fileTable) text(b *strings.Builder) {
	all := slices.SortedFunc(maps.Values(t.files), func(a, b *fileCount) int { return strings.Compare(a.path, b.path) })
	t.top(b, "Files, by time of calls", all, func(f *fileCount) uint64 { return uint64(f.time) })
	t.top(b, "Files, by bytes", all, func(f *fileCount) uint64 { return f.read + f.written })
}

func (t *fileTable) top(b *strings.Builder, title string, all []*fileCount, by func(*fileCount) uint64) {
	all = slices.DeleteFunc(slices.Clone(all), func(f *fileCount) bool { return by(f) == 0 })
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b *fileCount) int { return cmp.Compare(by(b), by(a)) })
	b.WriteString("\n" + title + ":\n")
	rows := [][]string{{"TIME", "CALLS", "READ", "WRITTEN", "FILE"}}
	for _, f := range all[:min(topRows, len(all))] {
		row := []string{"", number(f.calls), live.Bytes(int64(f.read)), live.Bytes(int64(f.written)), quoted(f.path)}
		if f.time > 0 {
			row[0] = formatDuration(f.time)
		}
		rows = append(rows, row)
	}
	b.WriteString(table.Text("rrrrl", rows))
	writeOmitted(b, len(all)-topRows, "file", "files", t.other, "calls on other files")
}

// failureKey is a call and its error.
type failureKey struct{ call, errno string }

type failure struct {
	failureKey
	count    uint64
	subjects []subject
}

// subject is the description that failed calls share. At least certain calls have it, and at most count.
type subject struct {
	text           string
	certain, count uint64
}

// maxSubjects is how many subjects each failure counts. A subject of more than a quarter of the calls is always among
// them (Metwally, Agrawal, El Abbadi: the Space-Saving algorithm).
const maxSubjects = 4

func (f *failure) add(text string) {
	f.count++
	least := 0
	for i := range f.subjects {
		if f.subjects[i].text == text {
			f.subjects[i].certain++
			f.subjects[i].count++
			return
		}
		if f.subjects[i].count < f.subjects[least].count {
			least = i
		}
	}
	if len(f.subjects) < maxSubjects {
		f.subjects = append(f.subjects, subject{text, 1, 1})
		return
	}
	f.subjects[least] = subject{text, 1, f.subjects[least].count + 1}
}

// mostFrequent returns the subject that certainly came most often; the first of equals.
func (f *failure) mostFrequent() string {
	return slices.MaxFunc(f.subjects, func(a, b subject) int { return cmp.Compare(a.certain, b.certain) }).text
}

type failureTable struct {
	failures map[failureKey]*failure
	other    uint64
}

func (t *failureTable) add(from *Source, r *tracefmt.Record) {
	if !Failed(r) {
		return
	}
	key := failureKey{r.Call, cmp.Or(r.Errno, "-1")}
	f := t.failures[key]
	if f == nil {
		if len(t.failures) >= maxFailures {
			t.other++
			return
		}
		f = &failure{failureKey: key}
		t.failures[key] = f
	}
	f.add(table.Truncate(description(r, from.arch()), maxText))
}

func (t *failureTable) text(b *strings.Builder) {
	if len(t.failures) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Values(t.failures), func(a, b *failure) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.call, b.call), cmp.Compare(a.errno, b.errno))
	})
	b.WriteString("\nFailed calls:\n")
	rows := [][]string{{"COUNT", "CALL", "ERROR", "MOST OFTEN"}}
	for _, f := range all[:min(callRows, len(all))] {
		rows = append(rows, []string{number(f.count), f.call, f.errno, f.mostFrequent()})
	}
	b.WriteString(table.Text("rlll", rows))
	writeOmitted(b, len(all)-callRows, "pair of call and error", "pairs of call and error", t.other, "other failures")
}

// writeOmitted says how many rows a table omits, and how many events the Summary only counted.
func writeOmitted(b *strings.Builder, rows int, one, several string, other uint64, others string) {
	if rows == 1 {
		several = one
	}
	if rows > 0 {
		fmt.Fprintf(b, "… and %d more %s\n", rows, several)
	}
	if other > 0 {
		fmt.Fprintf(b, "… and %d %s, which are not listed one by one\n", other, others)
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// count returns a number and a noun, in the plural where needed.
func count(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return number(n) + " " + noun
}

func byCount(counts map[string]uint64) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
}
