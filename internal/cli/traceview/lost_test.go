package traceview

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Lost events are listed by call, the most frequent first. Those with an unknown call are counted.
func TestLostByCall(t *testing.T) {
	many := map[string]uint64{}
	var table strings.Builder
	for i := range callRows + 1 {
		many[fmt.Sprintf("call%02d", i)] = uint64(100 - i)
		if i < callRows {
			fmt.Fprintf(&table, "%5d  call%02d\n", 100-i, i)
		}
	}
	for name, tc := range map[string]struct {
		accounts []tracefmt.Account // one of each Pod
		want     string
	}{
		"nothing":     {[]tracefmt.Account{{Lost: map[string]uint64{"ring": 0}, LostCalls: map[string]uint64{"read": 0}}}, ""},
		"no calls":    {[]tracefmt.Account{{Lost: map[string]uint64{"ring": 7}}}, ""},
		"all of them": {[]tracefmt.Account{{Lost: map[string]uint64{"ring": 158}, LostCalls: map[string]uint64{"close": 50, "read": 108}}}, "COUNT  CALL\n  108  read\n   50  close\n"},
		"some": {
			[]tracefmt.Account{{Lost: map[string]uint64{"ring": 2, "compat": 3}, LostCalls: map[string]uint64{"write": 2}}},
			"COUNT  CALL\n    2  write\n… and 3 whose call is unknown\n",
		},
		"of several Pods": {
			[]tracefmt.Account{
				{Lost: map[string]uint64{"ring": 5}, LostCalls: map[string]uint64{"read": 5}},
				{},
				{Lost: map[string]uint64{"ring": 4, "rare": 2}, LostCalls: map[string]uint64{"read": 4, "exec": 2}},
			},
			"COUNT  CALL\n    9  read\n    2  exec\n",
		},
		"too long a name": {[]tracefmt.Account{{Lost: map[string]uint64{"ring": 1}, LostCalls: map[string]uint64{strings.Repeat("x", maxWord+1): 1}}}, "COUNT  CALL\n    1  other\n"},
		"many":            {[]tracefmt.Account{{LostCalls: many}}, "COUNT  CALL\n" + table.String() + "… and 1 more name of a call\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSummary()
			for i := range tc.accounts {
				s.Line(NewSource(fmt.Sprint("web-", i), nil), &tracefmt.Line{Account: &tc.accounts[i]})
			}
			_, got, _ := strings.Cut(s.Text(), "\n\nLost events, by call:\n")
			got, _, _ = strings.Cut(got, "\nINCOMPLETE")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
