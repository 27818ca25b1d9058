package keeperapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

const (
	capturing = `{"v":1,"state":"capturing","seen":3,"packets":3,"bytes":300}`
	done      = `{"v":1,"state":"done","reason":"Duration","complete":true,"seen":4,"packets":4,"bytes":400}`
)

func TestReadAccounts(t *testing.T) {
	broken := errors.New("connection reset")
	tests := map[string]struct {
		in       io.Reader
		wantSeen []int64
		wantErr  string
		wantCut  bool
	}{
		"until done":                {in: strings.NewReader(capturing + "\n" + done + "\n"), wantSeen: []int64{3, 4}},
		"nothing is read past done": {in: strings.NewReader(done + "\nnot JSON\n"), wantSeen: []int64{4}},
		"heartbeats":                {in: strings.NewReader("\n\n" + capturing + "\n\r\n\n" + done + "\n"), wantSeen: []int64{3, 4}},
		"last line without newline": {in: strings.NewReader(done), wantSeen: []int64{4}},
		"cut":                       {in: strings.NewReader(capturing + "\n"), wantSeen: []int64{3}, wantCut: true},
		"cut within a line":         {in: strings.NewReader(capturing + "\n" + done[:20]), wantSeen: []int64{3}, wantErr: "parse account"},
		"empty":                     {in: strings.NewReader(""), wantCut: true},
		"broken": {
			in:       io.MultiReader(strings.NewReader(capturing+"\n"), iotest.ErrReader(broken)),
			wantSeen: []int64{3}, wantCut: true, wantErr: "connection reset",
		},
		"no JSON":       {in: strings.NewReader("<html>\n"), wantErr: "parse account"},
		"newer version": {in: strings.NewReader(`{"v":9,"state":"done"}` + "\n"), wantErr: "upgrade the operator"},
		"endless line":  {in: strings.NewReader(strings.Repeat(" ", 1<<20)), wantErr: "a line of more than"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var seen []int64
			err := keeperapi.ReadAccounts(t.Context(), tc.in, func(a account.Account) error {
				seen = append(seen, a.Seen)
				return nil
			})
			if diff := cmp.Diff(tc.wantSeen, seen); diff != "" {
				t.Errorf("accounts (-want +got):\n%s", diff)
			}
			if got := errors.Is(err, keeperapi.ErrStreamCut); got != tc.wantCut {
				t.Errorf("ErrStreamCut is %v in %v, want %v", got, err, tc.wantCut)
			}
			if tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
			if tc.wantErr == "" && !tc.wantCut && err != nil {
				t.Errorf("ReadAccounts: %v", err)
			}
		})
	}
}

func TestReadAccountsReturnsTheCallersError(t *testing.T) {
	want := errors.New("enough")
	err := keeperapi.ReadAccounts(t.Context(), strings.NewReader(capturing+"\n"), func(account.Account) error { return want })
	if !errors.Is(err, want) {
		t.Fatalf("ReadAccounts: %v, want %v", err, want)
	}
}

// TestReadAccountsAtAPace checks that a keeper that was taken over has no more lines read than the protocol needs, and that a reader
// that was held up loses none.
func TestReadAccountsAtAPace(t *testing.T) {
	const minute = 60 * 10 // lines that are read in a minute
	tests := map[string]struct {
		line     string
		sent     int
		min, max int // lines that are read
	}{
		"accounts":                          {line: capturing, sent: 1 << 20, min: minute, max: minute + 25},
		"blank lines":                       {line: " ", sent: 1 << 20, min: minute, max: minute + 25},
		"control: a reader that was asleep": {line: capturing, sent: 120, min: 120, max: 120},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				in := &sameLines{line: tc.line + "\n", left: tc.sent}
				err := keeperapi.ReadAccounts(ctx, in, func(account.Account) error { return nil })
				if read := tc.sent - in.left; !errors.Is(err, keeperapi.ErrStreamCut) || read < tc.min || read > tc.max {
					t.Errorf("%d lines are read in a minute, want %d to %d (%v)", read, tc.min, tc.max, err)
				}
			})
		})
	}
}

// sameLines returns one line with each Read, until none are left.
type sameLines struct {
	line string
	left int
}

func (l *sameLines) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	l.left--
	return copy(p, l.line), nil
}

func FuzzReadAccounts(f *testing.F) {
	for _, seed := range []string{capturing + "\n" + done + "\n", "\n\n", done, capturing + "\r\n", `{"v":1}`, "null\n", "[]\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) { synctest.Test(t, func(t *testing.T) { readsFuzzed(t, b) }) })
}

// readsFuzzed runs in a bubble, so that the pace of the lines takes no time.
func readsFuzzed(t *testing.T, b []byte) {
	t.Helper()
	last := account.Account{}
	err := keeperapi.ReadAccounts(t.Context(), bytes.NewReader(b), func(a account.Account) error {
		if last.State == account.StateDone {
			t.Error("an account after the last one")
		}
		if a.Version < 1 || a.Version > account.Version || len(a.Message) > account.MaxText || a.Seen < 0 || len(a.Files) > account.MaxFiles {
			t.Errorf("an account out of bounds: %+v", a)
		}
		last = a
		return nil
	})
	if (err == nil) != (last.State == account.StateDone) {
		t.Errorf("error %v with a last state of %q", err, last.State)
	}
}
