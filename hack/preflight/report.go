package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/redhat-openshift-ecosystem/openshift-preflight/certification"
	"sigs.k8s.io/yaml"
)

// States of a check.
const (
	passed  = "passed"
	warned  = "warned"
	failed  = "failed"
	errored = "error"
)

// outcome is the result of one check.
type outcome struct {
	subject, check, state, detail string
}

// outcomes returns the outcomes in the results, and those in logged that the results leave out: optional checks.
func outcomes(subject string, results certification.Results, logged []outcome) []outcome {
	var all []outcome
	for state, group := range map[string][]certification.Result{
		passed: results.Passed, warned: results.Warned, failed: results.Failed, errored: results.Errors,
	} {
		for _, r := range group {
			o := outcome{subject: subject, check: r.Name(), state: state}
			if err := r.Error(); err != nil {
				o.detail = err.Error()
			}
			all = append(all, o)
		}
	}
	for _, o := range logged {
		if !slices.ContainsFunc(all, func(other outcome) bool { return other.check == o.check }) {
			o.subject = subject
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b outcome) int { return cmp.Compare(a.check, b.check) })
	return all
}

// collectLogged returns a context whose logger collects the outcomes that the checks log, and a function that returns
// them.
func collectLogged(ctx context.Context) (context.Context, func() []outcome) {
	var all []outcome
	logger := funcr.NewJSON(func(line string) {
		var l struct{ Msg, Check, Result, Err string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "check completed" {
			state := map[string]string{"PASSED": passed, "WARNING": warned, "FAILED": failed}[l.Result]
			all = append(all, outcome{check: l.Check, state: cmp.Or(state, errored), detail: l.Err})
		}
	}, funcr.Options{})
	return logr.NewContext(ctx, logger), func() []outcome { return all }
}

// readExplained returns, by check, why the check need not pass.
func readExplained(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the explanations: %w", err)
	}
	var explained map[string]string
	if err := yaml.UnmarshalStrict(content, &explained); err != nil {
		return nil, fmt.Errorf("read the explanations in %s, a map of checks to reasons: %w", file, err)
	}
	return explained, nil
}

// report prints all outcomes. It fails on those that neither passed nor are explained, and on explanations that are no
// longer needed.
func report(out io.Writer, all []outcome, explained map[string]string) error {
	var problems []error
	used := map[string]bool{}
	for _, o := range all {
		line := fmt.Sprintf("%-16s %-7s %s", o.subject, o.state, o.check)
		if reason := explained[o.check]; o.state != passed && reason != "" {
			used[o.check] = true
			line += ": " + reason
		} else if o.state != passed {
			problems = append(problems, fmt.Errorf("%s: %s %s %s: fix it, or explain it", o.subject, o.check, o.state, o.detail))
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	for check := range explained {
		if !used[check] {
			problems = append(problems, fmt.Errorf("%s is explained but not needed: remove the explanation", check))
		}
	}
	if len(all) == 0 {
		problems = append(problems, errors.New("no check was run"))
	}
	return errors.Join(problems...)
}
