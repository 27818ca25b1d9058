package bpfprog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    bpfprog.Program
		wantErr string
	}{
		"everything": {text: "0"},
		"accept":     {text: "1,6 0 0 262144", want: bpfprog.Program{{Code: 6, K: 262144}}},
		"ip": {
			text: "4,40 0 0 12,21 0 1 2048,6 0 0 65535,6 0 0 0",
			want: bpfprog.Program{{Code: 40, K: 12}, {Code: 21, Jf: 1, K: 2048}, {Code: 6, K: 65535}, {Code: 6}},
		},
		"lost":               {text: "", wantErr: "want a number of instructions"},
		"too few":            {text: "2,6 0 0 1", wantErr: "1 instructions, 2 were announced"},
		"too many":           {text: "1,6 0 0 1,6 0 0 1", wantErr: "more than the announced"},
		"too long":           {text: "4097", wantErr: "at most 4096"},
		"form":               {text: "1,6 0 0", wantErr: "op jt jf k"},
		"range of a field":   {text: "1,6 0 256 0", wantErr: "op jt jf k"},
		"sign":               {text: "1,6 0 0 -1", wantErr: "op jt jf k"},
		"no return":          {text: "1,40 0 0 12", wantErr: "does not end with a return"},
		"jump past the end":  {text: "2,21 1 0 7,6 0 0 1", wantErr: "jump past the end"},
		"endless loop":       {text: "2,5 0 0 4294967295,6 0 0 1", wantErr: "jump past the end"},
		"division by zero":   {text: "2,52 0 0 0,6 0 0 1", wantErr: "division by zero"},
		"scratch memory":     {text: "2,2 0 0 16,6 0 0 1", wantErr: "scratch memory"},
		"unknown opcode":     {text: "2,255 0 0 0,6 0 0 1", wantErr: "unknown opcode"},
		"zero with a remain": {text: "0,6 0 0 1", wantErr: "more than the announced"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := bpfprog.Parse(tc.text)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("Parse: %v, want an error with %q", err, tc.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Fatalf("Parse: %v (-want +got):\n%s", err, diff)
			}
			if got.String() != tc.text {
				t.Errorf("String: %q, want %q", got.String(), tc.text)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0", "1,6 0 0 262144", "4,40 0 0 12,21 0 1 2048,6 0 0 65535,6 0 0 0", "2,", ",", "1,6 0 0 1 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := bpfprog.Parse(text)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("accepted, yet not valid: %v", err)
		}
		again, err := bpfprog.Parse(p.String())
		if diff := cmp.Diff(p, again); diff != "" || err != nil {
			t.Errorf("written and read again: %v (-want +got):\n%s", err, diff)
		}
	})
}
