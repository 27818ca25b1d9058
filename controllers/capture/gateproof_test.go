package capture

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestDisproved checks what is believed of a gate whose Pod is gone.
func TestDisproved(t *testing.T) {
	t.Parallel()
	done := func(change func(*account.Account)) *account.Account {
		a := &account.Account{State: account.StateDone, Started: dawn, Gated: true}
		if change != nil {
			change(a)
		}
		return a
	}
	opened := &sondev1.GateResult{Outcome: sondev1.GateOpened, WaitedMilliseconds: 7}
	over := &sondev1.GateResult{Outcome: sondev1.GateOver}
	for name, tc := range map[string]struct {
		before *sondev1.GateResult
		acc    *account.Account
		want   *sondev1.GateResult
	}{
		"opened, and the probe says so":         {opened, done(func(a *account.Account) { a.Gate = "c0ffee" }), opened},
		"opened, and the probe opened none":     {opened, done(nil), &sondev1.GateResult{Outcome: sondev1.GateUntraced, WaitedMilliseconds: 7}},
		"opened, and the probe was killed":      {opened, nil, opened},
		"over":                                  {over, done(nil), over},
		"no pass has read it":                   {nil, done(nil), &sondev1.GateResult{Outcome: sondev1.GateUntraced}},
		"no pass has read it, and it opened":    {nil, done(func(a *account.Account) { a.Gate = "c0ffee" }), nil},
		"no pass has read it, nothing recorded": {nil, done(func(a *account.Account) { a.Started = a.Ended }), nil},
		"not gated":                             {nil, done(func(a *account.Account) { a.Gated = false }), nil},
		"the probe still runs":                  {nil, done(func(a *account.Account) { a.State = account.StateCapturing }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, disproved(tc.before, tc.acc)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}
