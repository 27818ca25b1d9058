package bpfprog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

var ipProgram = bpfprog.Program{
	{Code: 0x28, K: 12}, {Code: 0x15, Jf: 1, K: 2048}, {Code: 0x06, K: 262144}, {Code: 0x06},
}

const ipText = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"

// TestValidateRefuses has a program for each reason of the kernel to refuse.
func TestValidateRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"jump past the end":     {"2,21 1 0 0,6 0 0 0", "jump past the end"},
		"else past the end":     {"2,21 0 1 0,6 0 0 0", "jump past the end"},
		"always past the end":   {"2,5 0 0 1,6 0 0 0", "jump past the end"},
		"jump backwards":        {"3,40 0 0 0,5 0 0 4294967294,6 0 0 0", "jump past the end"},
		"remainder of zero":     {"2,148 0 0 0,6 0 0 0", "division by zero"},
		"shift of 32":           {"2,100 0 0 32,6 0 0 0", "shift out of range"},
		"load scratch 16":       {"2,96 0 0 16,6 0 0 0", "scratch memory out of range"},
		"store scratch 16":      {"2,2 0 0 16,6 0 0 0", "scratch memory out of range"},
		"unwritten":             {"2,96 0 0 3,22 0 0 0", "instruction 0 (96 0 0 3): it may read scratch memory that was not written"},
		"unwritten for X":       {"3,2 0 0 1,97 0 0 0,22 0 0 0", "instruction 1 (97 0 0 0): it may read scratch memory"},
		"written on a path":     {"5,21 0 1 7,2 0 0 3,96 0 0 3,22 0 0 0,6 0 0 0", "instruction 2 (96 0 0 3): it may read scratch memory"},
		"written elsewhere":     {"5,21 0 2 7,2 0 0 3,5 0 0 1,96 0 0 3,22 0 0 0", "instruction 3 (96 0 0 3): it may read scratch memory"},
		"written before a jump": {"4,5 0 0 1,2 0 0 3,96 0 0 3,22 0 0 0", "instruction 2 (96 0 0 3): it may read scratch memory"},
		"unknown metadata":      {"2,32 0 0 4294963264,22 0 0 0", "unknown metadata"},
		"odd metadata":          {"2,48 0 0 4294963201,22 0 0 0", "unknown metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			needKernel(t, tc.text, unix.EINVAL)
			program, err := bpfprog.Parse(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, error %v, want %q", program, err, tc.want)
			}
		})
	}
}

// TestValidateAccepts has programs that the kernel accepts.
func TestValidateAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"written":               "4,2 0 0 3,96 0 0 3,97 0 0 3,22 0 0 0",
		"written by X":          "3,3 0 0 15,96 0 0 15,22 0 0 0",
		"written on both paths": "6,21 0 2 7,2 0 0 3,5 0 0 1,2 0 0 3,96 0 0 3,22 0 0 0",
		"read where never run":  "4,5 0 0 1,96 0 0 3,6 0 0 0,22 0 0 0",
		"written before":        "5,2 0 0 3,21 0 1 7,2 0 0 4,96 0 0 3,22 0 0 0",
		"metadata":              "2,32 0 0 4294963260,22 0 0 0",
		"negative offset":       "2,32 0 0 4294963199,22 0 0 0",
		"metadata after X":      "2,80 0 0 4294963264,22 0 0 0",
	} {
		t.Run(name, func(t *testing.T) {
			needKernel(t, text, nil)
			if _, err := bpfprog.Parse(text); err != nil {
				t.Error(err)
			}
		})
	}
}

// needKernel attaches the program to a socket and compares the kernel's answer.
func needKernel(t *testing.T, text string, want error) {
	t.Helper()
	var filter []unix.SockFilter
	for _, field := range strings.Split(text, ",")[1:] {
		var in unix.SockFilter
		if _, err := fmt.Sscan(field, &in.Code, &in.Jt, &in.Jf, &in.K); err != nil {
			t.Fatal(err)
		}
		filter = append(filter, in)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	got := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if !errors.Is(got, want) {
		t.Errorf("the kernel says %v, want %v", got, want)
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
