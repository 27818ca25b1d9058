package keeper

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// confinedStatus has the lines of a confined keeper's status that are checked.
const confinedStatus = `Name:	agent
Umask:	0022
State:	S (sleeping)
Uid:	2001000007	2001000007	2001000007	2001000007
Gid:	2001000007	2001000007	2001000007	2001000007
Groups:	2001000007
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	1
`

// four returns an ID as a status has it: real, effective, saved, file system.
func four(id string) string { return strings.Join([]string{id, id, id, id}, "\t") }

func TestConfinement(t *testing.T) {
	replace := strings.NewReplacer
	tests := map[string]struct {
		change       *strings.Replacer
		rootWritable bool
		token        bool
		want         []string
	}{
		"confined":           {change: replace()},
		"root":               {change: replace("Uid:	"+four("2001000007"), "Uid:	"+four("0")), want: []string{"user 0"}},
		"saved user is root": {change: replace("Uid:	2001000007	2001000007	2001000007", "Uid:	2001000007	2001000007	0"), want: []string{"user 0"}},
		"group is root":      {change: replace("Gid:	"+four("2001000007"), "Gid:	"+four("0")), want: []string{"group 0"}},
		"a shared user":      {change: replace("2001000007", "65532"), want: []string{"user 65532", "group 65532"}},
		"a namespace's user": {change: replace("Uid:	"+four("2001000007"), "Uid:	"+four("1000650000")), want: []string{"user 1000650000"}},
		"above the range":    {change: replace("Uid:	"+four("2001000007"), "Uid:	"+four("2147000000")), want: []string{"user 2147000000"}},
		"one capability":     {change: replace("CapEff:	0000000000000000", "CapEff:	0000000000000400"), want: []string{"capabilities 0x400"}},
		"could have one":     {change: replace("CapPrm:	0000000000000000", "CapPrm:	0000000000200000"), want: []string{"capabilities 0x200000"}},
		"new privileges":     {change: replace("NoNewPrivs:	1", "NoNewPrivs:	0"), want: []string{"allowPrivilegeEscalation"}},
		"no filter":          {change: replace("Seccomp:	2", "Seccomp:	0"), want: []string{"RuntimeDefault"}},
		"root is writable":   {change: replace(), rootWritable: true, want: []string{"readOnlyRootFilesystem"}},
		"token":              {change: replace(), token: true, want: []string{"automountServiceAccountToken"}},
		"old kernel":         {change: replace("NoNewPrivs:	1\n", ""), want: []string{"does not report NoNewPrivs", "allowPrivilegeEscalation"}},
		"everything": {
			change:       replace("2001000007", "0", "CapEff:	0000000000000000", "CapEff:	000001ffffffffff", "NoNewPrivs:	1", "NoNewPrivs:	0", "Seccomp:	2", "Seccomp:	0"),
			rootWritable: true, token: true,
			want: []string{"user 0", "group 0", "capabilities", "allowPrivilegeEscalation", "RuntimeDefault", "readOnlyRootFilesystem", "automountServiceAccountToken"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := parseStatus([]byte(tc.change.Replace(confinedStatus)))
			if err != nil {
				t.Fatal(err)
			}
			err = confinement{status: s, rootWritable: tc.rootWritable, token: tc.token}.check()
			if len(tc.want) == 0 {
				if err != nil {
					t.Fatalf("check: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("check passed")
			}
			if faults := strings.Split(err.Error(), "; "); len(faults) != len(tc.want) {
				t.Errorf("%d faults, want %d: %v", len(faults), len(tc.want), err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

func TestParseStatusRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"three users":   "Uid:	1	2	3\n",
		"negative user": "Uid:	-1	2	3	4\n",
		"no group":      "Gid:	1	2	x	4\n",
		"no number":     "CapEff:	none\n",
		"two numbers":   "Seccomp:	2	2\n",
		"too large":     "CapPrm:	10000000000000000\n",
		"endless line":  "Name:	" + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := parseStatus([]byte(text)); err == nil {
				t.Fatalf("parseStatus returned %+v", s)
			}
		})
	}
}

// The running kernel's status can be parsed.
func TestCheckConfinementReadsThisKernel(t *testing.T) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseStatus(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), s.missing); diff != "" {
		t.Errorf("fields not found (-want +got):\n%s", diff)
	}
	if s.uids[1] != os.Geteuid() || s.gids[1] != os.Getegid() {
		t.Errorf("effective user %d, group %d, want %d, %d", s.uids[1], s.gids[1], os.Geteuid(), os.Getegid())
	}
	// Unit tests are not confined; test/e2e and cmd/agent test a confined keeper.
	if err := CheckConfinement(); err == nil || !strings.Contains(err.Error(), "refuses to run unconfined") {
		t.Errorf("CheckConfinement: %v", err)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(confinedStatus))
	f.Add([]byte("Uid:	0	0	0	0\nUid:\nCapEff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStatus(b)
		if err == nil && (len(s.uids) != 4 || len(s.gids) != 4) && len(s.missing) == 0 {
			t.Errorf("%d users, %d groups", len(s.uids), len(s.gids))
		}
		if err == nil && len(s.missing) > 0 && (confinement{status: s}).check() == nil {
			t.Error("a missing field passes")
		}
	})
}
