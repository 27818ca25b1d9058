package account_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/account"
)

func TestMarshalIsBoundedAndReadsBack(t *testing.T) {
	cases := map[string]account.Account{
		"empty": {State: account.StateStarting},
		"full": {
			State: account.StateDone, Engine: "afpacket", Reason: "Duration", Complete: true,
			Started: time.Unix(1, 0).UTC(), Ended: time.Unix(31, 5).UTC(),
			Counts:     account.Counts{Seen: 10, Packets: 7, DroppedKernel: 1, DroppedRing: 2},
			Interfaces: []account.Interface{{Name: "eth0", Counts: account.Counts{Seen: 10}}},
			Files:      []account.File{{Name: "web.pcapng", Bytes: 1 << 40}},
		},
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
			want.Version = account.Version
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
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
