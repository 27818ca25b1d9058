package release

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	r := Report{
		Outcome: Stalled, Reason: ReasonImmutable, Message: "no", Remediated: RolledBack, Revision: 3, ChartVersion: "1.2.0",
		History: []Revision{{Revision: 3, ChartVersion: "1.2.0", Status: "deployed", Unix: 7}},
	}
	b, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseReport(b)
	if err != nil {
		t.Fatal(err)
	}
	r.Version = Version
	if diff := cmp.Diff(&r, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestReportFits checks that each report fits a termination message.
func TestReportFits(t *testing.T) {
	for name, message := range map[string]string{"long": strings.Repeat("x", 1<<20), "control characters": strings.Repeat("\x01", 1<<20), "quotes": strings.Repeat(`"`, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			b, err := Report{Outcome: Retry, Reason: ReasonNotReady, Message: message, History: make([]Revision, 100)}.Marshal()
			if err != nil || len(b) > MaxReport {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
}

func TestParseReportRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           ``,
		"no JSON":           `killed`,
		"another version":   `{"version":2,"outcome":"Ready","reason":"Released"}`,
		"no outcome":        `{"version":1,"reason":"Released"}`,
		"another outcome":   `{"version":1,"outcome":"Maybe","reason":"Released"}`,
		"no reason":         `{"version":1,"outcome":"Ready"}`,
		"a reason's form":   `{"version":1,"outcome":"Ready","reason":"not a reason"}`,
		"a long reason":     `{"version":1,"outcome":"Ready","reason":"` + strings.Repeat("a", 65) + `"}`,
		"remediated":        `{"version":1,"outcome":"Ready","reason":"Released","remediated":"Forgotten"}`,
		"negative revision": `{"version":1,"outcome":"Ready","reason":"Released","revision":-1}`,
		"zero in history":   `{"version":1,"outcome":"Ready","reason":"Released","history":[{"revision":0}]}`,
		"after year 9999":   `{"version":1,"outcome":"Ready","reason":"Released","history":[{"revision":1,"unix":253402300800}]}`,
		"too long":          `{"version":1,"outcome":"Ready","reason":"Released","message":"` + strings.Repeat("a", MaxReport) + `"}`,
	} {
		if _, err := ParseReport([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestParseRequest(t *testing.T) {
	valid := Request{Version: Version, Release: "r", Namespace: "n", Anchor: Anchor{Name: "a", UID: "u"}}
	for name, tc := range map[string]struct {
		change func(*Request)
		want   string
	}{
		"valid":           {},
		"another version": {func(r *Request) { r.Version = 2 }, "upgrade its image"},
		"no release":      {func(r *Request) { r.Release = "" }, "missing"},
		"no anchor":       {func(r *Request) { r.Anchor.UID = "" }, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			q := valid
			if tc.change != nil {
				tc.change(&q)
			}
			b, err := json.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseRequest(b)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// FuzzParseReport checks that whatever is parsed fits a status, and that it is written and read again as it is.
func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"outcome":"Ready","reason":"Released","history":[{"revision":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReport(b)
		if err != nil {
			return
		}
		if len(r.Message) > maxMessage || len(r.Reason) > maxReason || len(r.History) > MaxHistory || bytes.ContainsAny([]byte(r.Message), "\n\r") {
			t.Errorf("%+v", r)
		}
		again, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseReport(again); err != nil {
			t.Errorf("%v: %s", err, again)
		}
	})
}
