package privilege_test

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

func TestSetting(t *testing.T) {
	cases := map[string]struct {
		args    []string
		want    privilege.Setting
		wantErr string
	}{
		"default":      {},
		"privileged":   {args: []string{"--p=Privileged"}, want: privilege.Privileged},
		"capabilities": {args: []string{"--p=Capabilities"}, want: privilege.Capabilities},
		"other case":   {args: []string{"--p=capabilities"}, wantErr: `"capabilities" is neither Privileged nor Capabilities`},
		"empty":        {args: []string{"--p="}, wantErr: "neither Privileged nor Capabilities"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got privilege.Setting
			flags := flag.NewFlagSet("x", flag.ContinueOnError)
			flags.SetOutput(io.Discard)
			flags.Var(&got, "p", "")
			err := flags.Parse(tc.args)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if zero := privilege.Setting(""); zero.String() != "Privileged" {
		t.Errorf("the zero setting says it is %s", zero.String())
	}
}

func TestNeeded(t *testing.T) {
	numbers := map[string]int{"KILL": unix.CAP_KILL, "NET_RAW": unix.CAP_NET_RAW, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "SYS_PTRACE": unix.CAP_SYS_PTRACE}
	got := map[string]int{}
	var names []string
	for _, c := range privilege.Needed(true) {
		got[c.Name] = c.Bit
		names = append(names, c.Name)
	}
	if diff := cmp.Diff(numbers, got); diff != "" {
		t.Errorf("numbers (-kernel +ours):\n%s", diff)
	}
	if !slices.IsSorted(names) {
		t.Errorf("%v are not sorted", names)
	}
	if n := len(privilege.Needed(false)); n != len(names)-1 {
		t.Errorf("without a gate %d are needed", n)
	}
}

func TestCheck(t *testing.T) {
	all := ^uint64(0)
	for _, gate := range []bool{false, true} {
		if err := privilege.Check(all, gate); err != nil {
			t.Errorf("all capabilities: %v", err)
		}
		for _, c := range privilege.Needed(gate) {
			err := privilege.Check(all&^(1<<c.Bit), gate)
			if err == nil || !strings.Contains(err.Error(), "lacks "+c.Name+" (to "+c.For+"):") {
				t.Errorf("without %s: %v", c.Name, err)
			}
			for _, other := range privilege.Needed(gate) {
				if other != c && strings.Contains(err.Error(), other.Name) {
					t.Errorf("without %s the error names %s: %v", c.Name, other.Name, err)
				}
			}
		}
		if err := privilege.Check(0, gate); err == nil || strings.Count(err.Error(), "(to ") != len(privilege.Needed(gate)) {
			t.Errorf("without any: %v", err)
		}
	}
	if err := privilege.Check(all&^(1<<unix.CAP_KILL), false); err != nil {
		t.Errorf("a probe without a gate needs KILL: %v", err)
	}
}
