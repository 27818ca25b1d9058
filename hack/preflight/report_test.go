package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/certification"
)

func TestReport(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		all       []outcome
		explained map[string]string
		wantOut   string
		wantErrs  []string
	}{
		"all passed": {
			all:     []outcome{{subject: "operator", check: "A", state: passed}},
			wantOut: "operator         passed  A\n",
		},
		"explained": {
			all:       []outcome{{subject: "operator", check: "A", state: errored, detail: "no cluster"}, {subject: "container/arm64", check: "A", state: passed}},
			explained: map[string]string{"A": "needs a cluster"},
			wantOut:   "operator         error   A: needs a cluster\ncontainer/arm64  passed  A\n",
		},
		"not explained": {
			all:      []outcome{{subject: "operator", check: "A", state: failed}, {subject: "operator", check: "B", state: warned}},
			wantOut:  "operator         failed  A\noperator         warned  B\n",
			wantErrs: []string{"operator: A failed", "operator: B warned", "fix it, or explain it"},
		},
		"explained for nothing": {
			all:       []outcome{{subject: "operator", check: "A", state: passed}},
			explained: map[string]string{"A": "was broken", "gone": "an older preflight had it"},
			wantOut:   "operator         passed  A\n",
			wantErrs:  []string{"A is explained but not needed", "gone is explained but not needed"},
		},
		"nothing was run": {wantErrs: []string{"no check was run"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := report(&out, tc.all, tc.explained)
			if diff := cmp.Diff(tc.wantOut, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if (err != nil) != (len(tc.wantErrs) > 0) {
				t.Fatalf("error is %v, want %q", err, tc.wantErrs)
			}
			for _, want := range tc.wantErrs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want one that contains %q", err, want)
				}
			}
		})
	}
}

func TestExplanationsAreAMap(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "explained.yaml")
	if err := os.WriteFile(file, []byte("- A\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + ".gone"} {
		if _, err := readExplained(name); err == nil || !strings.Contains(err.Error(), "read the explanations") {
			t.Errorf("error for %s is %v", name, err)
		}
	}
}

func TestOptionalChecksAreReported(t *testing.T) {
	t.Parallel()
	ctx, logged := collectLogged(t.Context())
	logger := logr.FromContextOrDiscard(ctx)
	for check, result := range map[string]string{"A": "PASSED", "B": "FAILED", "C": "ERROR", "D": "WARNING"} {
		logger.WithValues("check", check).WithValues("result", result).Info("check completed")
	}
	logger.Info("something else", "check", "E", "result", "PASSED")
	want := []outcome{{"operator", "A", passed, ""}, {"operator", "B", failed, ""}, {"operator", "C", errored, ""}, {"operator", "D", warned, ""}}
	if diff := cmp.Diff(want, outcomes("operator", certification.Results{}, logged()), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}
