package account_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

func TestMarshalIsBoundedAndReadsBack(t *testing.T) {
	cases := map[string]account.Account{
		"empty": {State: account.StateStarting},
		"full": {
			State: account.StateDone, Engine: "afpacket", EngineMessage: "the kernel has no tcx", Reason: "Duration", Complete: true,
			Started: time.Unix(1, 0).UTC(), Ended: time.Unix(31, 5).UTC(),
			Counts:     account.Counts{Seen: 10, Packets: 7, DroppedKernel: 1, DroppedRing: 2},
			Interfaces: []account.Interface{{Name: "eth0", Counts: account.Counts{Seen: 10}}},
			Files:      []account.File{{Name: "web.pcapng", Bytes: 1 << 40}},
		},
		"ring": {
			Version: 2, State: account.StateDone, Complete: true,
			Counts: account.Counts{Seen: 10, Packets: 4, Overwritten: 5, DroppedRing: 1}, Files: files(16, account.MaxFileName),
		},
		"a trace": {Version: 3, State: account.StateDone, Counts: account.Counts{Seen: 10}, Events: 7, Lost: map[string]int64{"ring": 3}},
		"processes": {
			Version: 4, State: account.StateDone, Counts: account.Counts{Seen: 10, Packets: 10},
			Processes: &account.Processes{Named: 7, None: 2, Unknown: map[string]int64{"forked": 1}, Message: "not on this node"},
		},
		"many files": {Version: 2, State: account.StateDone, Files: files(9, 10)},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := want.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			got, err := account.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if want.Version == 0 {
				want.Version = 1 // the lowest version that holds the account
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// files makes n files, with names of so many bytes.
func files(n, name int) []account.File {
	var out []account.File
	for i := range n {
		out = append(out, account.File{Name: strings.Repeat("y", name-2) + string(rune('a'+i)) + "z", Bytes: 1 << 40})
	}
	return out
}

// All files of a ring are named, even if other parts of the account must be cut.
func TestMarshalNamesAllFiles(t *testing.T) {
	a := account.Account{
		State: account.StateDone, Engine: strings.Repeat("e", account.MaxEngine), EngineMessage: strings.Repeat("\x02", 300), Reason: strings.Repeat("r", 64), Message: strings.Repeat("\x01", 300),
		Counts: account.Counts{
			Seen: 1 << 62, Packets: 1 << 62, Bytes: 1 << 62, Overwritten: 1 << 62,
			DroppedKernel: 1 << 62, DroppedRing: 1 << 62, DroppedWriter: 1 << 62, Truncated: 1 << 62,
		},
		Files: files(account.MaxFiles+3, account.MaxFileName),
	}
	for range account.MaxInterfaces {
		a.Interfaces = append(a.Interfaces, account.Interface{Name: "eth0", Counts: a.Counts})
	}
	b, err := a.Marshal()
	if err != nil || len(b) > account.MaxBytes {
		t.Fatalf("%d bytes, at most %d (%v)", len(b), account.MaxBytes, err)
	}
	got, err := account.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Files[3:], got.Files); diff != "" {
		t.Errorf("not the newest (-want +got):\n%s", diff)
	}
}

func TestMarshalCutsWhatIsTooLong(t *testing.T) {
	a := account.Account{State: account.StateDone, Message: strings.Repeat("é", 5000), Counts: account.Counts{Seen: 1, Packets: 1}}
	for range 500 {
		a.Interfaces = append(a.Interfaces, account.Interface{Name: strings.Repeat("x", 400)})
		a.Files = append(a.Files, account.File{Name: strings.Repeat("y", 60)})
	}
	b, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > account.MaxBytes {
		t.Errorf("%d bytes, want at most %d", len(b), account.MaxBytes)
	}
	if _, err := account.Parse(b); err != nil {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]string{
		"nothing":        "",
		"not json":       "killed",
		"unknown state":  `{"v":1,"state":"dancing"}`,
		"newer version":  `{"v":99,"state":"done"}`,
		"no version":     `{"state":"done"}`,
		"negative count": `{"v":1,"state":"done","packets":-1}`,
		"too long":       `{"v":1,"state":"done","message":"` + strings.Repeat("x", account.MaxBytes) + `"}`,
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			if a, err := account.Parse([]byte(in)); err == nil {
				t.Errorf("Parse(%q) = %+v, want an error", in, a)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"done","seen":3,"packets":3,"files":[{"name":"a","bytes":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := account.Parse(b)
		if err != nil {
			return
		}
		out, err := a.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) > account.MaxBytes && len(a.Files) == 0 {
			t.Errorf("grew to %d bytes", len(out))
		}
	})
}
