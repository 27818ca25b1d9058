package live

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func twoPods() View {
	return View{
		Title: "shop/web-x7k2p (Deployment/web)", Status: "Capturing", Clock: "12s of 30s",
		Pods: []Pod{
			{Name: "web-6d9f7c5b8-4xk2p", Node: "worker-1", State: "Capturing", Count: 1234, Bytes: 1300000},
			{Name: "web-6d9f7c5b8-zz9qd", Node: "worker-2", State: "Pending", Count: 0, Bytes: 0, Lost: 3},
		},
		Notes: []string{"No live counts: the operator is not ready"},
	}
}

func events() View {
	v := twoPods()
	v.Unit = Events
	return v
}

func manyPods() View {
	v := View{Title: "shop/agent", Status: "Capturing"}
	for c := 'a'; c <= 'z'; c++ {
		v.Pods = append(v.Pods, Pod{Name: "agent-" + string(c), Node: "worker-" + string(c), State: "Capturing", Count: int64(c)})
	}
	return v
}

func withTable() View {
	v := manyPods()
	v.Table = &Table{Caption: "3 calls by calls/s. Keys: c calls/s", Sides: "rl", Rows: [][]string{{"CALLS/S", "CALL"}, {"12", "read"}, {"3", "openat"}, {"0", "close"}}}
	return v
}

func intercept() View {
	return View{
		Title: "shop/web-x7k2p (Deployment/web port 8080 to 127.0.0.1:8080)", Status: "Ended: the app answers", Clock: "12s", Unit: Requests,
		Pods:  []Pod{{Name: "web-1", State: "Ended", Count: 3, Bytes: 300}},
		Notes: []string{"this line is too long for the terminal, and its end says what to do: ask an admin for ClusterRole sonde-intercept"},
		Log:   []string{"09:30:09  web-1  GET /a/path/that/is/longer/than/the/terminal/is/wide  200  by you", "09:30:08  web-1  GET /  200  by you"},
	}
}

// longLog is an intercept of several Pods with more requests than a low terminal has lines.
func longLog() View {
	v := intercept()
	v.Notes = nil
	for _, name := range []string{"web-2", "web-3", "web-4"} {
		v.Pods = append(v.Pods, Pod{Name: name, State: "Ended"})
	}
	for range 8 {
		v.Log = append(v.Log, v.Log[1])
	}
	return v
}

func TestLines(t *testing.T) {
	tests := map[string]struct {
		view          View
		width, height int
	}{
		"wide":               {twoPods(), 120, 24},
		"events":             {events(), 120, 24},
		"no-limits":          {twoPods(), 0, 0},
		"node-gives-way":     {twoPods(), 64, 24},
		"names-cut":          {twoPods(), 55, 24},
		"very-narrow":        {twoPods(), 20, 24},
		"low":                {twoPods(), 80, 4},
		"one-line":           {twoPods(), 80, 1},
		"more-than-fits":     {manyPods(), 80, 10},
		"with-a-table":       {withTable(), 60, 12},
		"table-in-a-low-one": {withTable(), 60, 6},
		"wrapped":            {intercept(), 70, 24},
		"low-with-a-log":     {longLog(), 80, 9},
		"before-any-pod":     {View{Title: "shop/web-x7k2p", Status: "Waiting for the operator"}, 80, 24},
		"control-characters": {View{Title: "shop/web", Status: "Waiting:\nline\x1b[2J", Notes: []string{"a\tb\r"}}, 80, 24},
		"names-of-any-kind":  {View{Title: "böse ☃", Pods: []Pod{{Name: strings.Repeat("ö", 60), State: "Capturing"}}}, 60, 24},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lines := Lines(tc.view, tc.width, tc.height)
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); tc.width > 0 && n > tc.width {
					t.Errorf("line of %d characters in a terminal of %d: %q", n, tc.width, l)
				}
			}
			if tc.height > 0 && len(lines) > tc.height {
				t.Errorf("%d lines in a terminal of %d", len(lines), tc.height)
			}
			golden(t, name, strings.Join(lines, "\n")+"\n")
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestBytes(t *testing.T) {
	tests := map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB",
		1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB", 1 << 30: "1.0 GiB", 1<<63 - 1: "8.0 EiB",
	}
	for n, want := range tests {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}
