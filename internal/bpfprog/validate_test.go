package bpfprog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/bpfprog"
)

var ipProgram = bpfprog.Program{
	{Op: 0x28, K: 12}, {Op: 0x15, Jf: 1, K: 2048}, {Op: 0x06, K: 262144}, {Op: 0x06},
}

const ipText = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"

// TestValidateRefuses goes through what the kernel would refuse at attach.
func TestValidateRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"jump past the end":   {"2,21 1 0 0,6 0 0 0", "jump past the end"},
		"else past the end":   {"2,21 0 1 0,6 0 0 0", "jump past the end"},
		"always past the end": {"2,5 0 0 1,6 0 0 0", "jump past the end"},
		"jump backwards":      {"3,40 0 0 0,5 0 0 4294967294,6 0 0 0", "jump past the end"},
		"remainder of zero":   {"2,148 0 0 0,6 0 0 0", "division by zero"},
		"shift of 32":         {"2,100 0 0 32,6 0 0 0", "shift out of range"},
		"load scratch 16":     {"2,96 0 0 16,6 0 0 0", "scratch memory out of range"},
		"store scratch 16":    {"2,2 0 0 16,6 0 0 0", "scratch memory out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := bpfprog.ParseProgram(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, error %v, want %q", program, err, tc.want)
			}
		})
	}
}

func TestProgramJSON(t *testing.T) {
	type holder struct{ Filter bpfprog.Program }
	for name, tc := range map[string]struct {
		program bpfprog.Program
		want    string
	}{
		"ip":  {ipProgram, `{"Filter":"` + ipText + `"}`},
		"nil": {nil, `{"Filter":"0"}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(holder{tc.program})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(text)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			var back holder
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.program, back.Filter); diff != "" {
				t.Errorf("program (-want +got):\n%s", diff)
			}
		})
	}
	var back holder
	if err := json.Unmarshal([]byte(`{"Filter":"1,40 0 0 12"}`), &back); err == nil {
		t.Error("JSON brought a program in that Validate refuses")
	}
}
