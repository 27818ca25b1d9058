package pcapfilter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/pcapfilter"
)

var ipProgram = pcapfilter.Program{
	{Op: 0x28, K: 12}, {Op: 0x15, Jf: 1, K: 2048}, {Op: 0x06, K: 262144}, {Op: 0x06},
}

const ipText = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"

func TestProgramText(t *testing.T) {
	for name, tc := range map[string]struct {
		program pcapfilter.Program
		text    string
	}{
		"ip":            {ipProgram, ipText},
		"nil":           {nil, "0"},
		"largest K":     {pcapfilter.Program{{Op: 0x06, K: 1<<32 - 1}}, "1,6 0 0 4294967295"},
		"metadata load": {pcapfilter.Program{{Op: 0x30, K: 0xfffff030}, {Op: 0x16}}, "2,48 0 0 4294963248,22 0 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.text, tc.program.String()); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			parsed, err := pcapfilter.ParseProgram(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.program, parsed); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseProgramRefuses(t *testing.T) {
	long := "4097" + strings.Repeat(",6 0 0 0", 4097)
	for name, tc := range map[string]struct{ text, want string }{
		"empty":               {"", "want a number of instructions"},
		"not a number":        {"x", "want a number of instructions"},
		"negative":            {"-1", "want a number of instructions"},
		"too many":            {long, "at most 4096"},
		"fewer than said":     {"2,6 0 0 0", "1 instructions, 2 were announced"},
		"more than said":      {"1,6 0 0 0,6 0 0 0", "more than the announced 1"},
		"zero and one":        {"0,6 0 0 0", "more than the announced 0"},
		"too few numbers":     {"1,6 0 0", "want \"op jt jf k\""},
		"too many numbers":    {"1,6 0 0 0 0", "want \"op jt jf k\""},
		"not a decimal":       {"1,6 0 0 0x10", "want \"op jt jf k\""},
		"K too large":         {"1,6 0 0 4294967296", "want \"op jt jf k\""},
		"jump too large":      {"2,21 256 0 0,6 0 0 0", "want \"op jt jf k\""},
		"trailing comma":      {"1,6 0 0 0,", "more than the announced 1"},
		"trailing line":       {"1,6 0 0 0\n", "want \"op jt jf k\""},
		"no return":           {"1,40 0 0 12", "does not end with a return"},
		"unknown opcode":      {"2,255 0 0 0,6 0 0 0", "unknown opcode"},
		"jump past the end":   {"2,21 1 0 0,6 0 0 0", "jump past the end"},
		"else past the end":   {"2,21 0 1 0,6 0 0 0", "jump past the end"},
		"always past the end": {"2,5 0 0 1,6 0 0 0", "jump past the end"},
		"jump backwards":      {"3,40 0 0 0,5 0 0 4294967294,6 0 0 0", "jump past the end"},
		"division by zero":    {"2,52 0 0 0,6 0 0 0", "division by zero"},
		"remainder of zero":   {"2,148 0 0 0,6 0 0 0", "division by zero"},
		"shift of 32":         {"2,100 0 0 32,6 0 0 0", "shift out of range"},
		"load scratch 16":     {"2,96 0 0 16,6 0 0 0", "scratch memory out of range"},
		"store scratch 16":    {"2,2 0 0 16,6 0 0 0", "scratch memory out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := pcapfilter.ParseProgram(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, error %v, want %q", program, err, tc.want)
			}
		})
	}
}

func TestProgramJSON(t *testing.T) {
	type holder struct{ Filter pcapfilter.Program }
	for name, tc := range map[string]struct {
		program pcapfilter.Program
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
