package wireshark

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// program writes a shell script that stands in for Wireshark.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wireshark")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func await(t *testing.T, v *Viewer) {
	t.Helper()
	select {
	case <-v.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("the program does not end")
	}
}

func TestFind(t *testing.T) {
	there := program(t, "")
	t.Setenv("WIRESHARK", "")
	t.Setenv("PATH", filepath.Dir(there))
	if got, err := Find(); got != there || err != nil {
		t.Errorf("on the PATH: %q, %v", got, err)
	}
	t.Setenv("PATH", "")
	if _, err := Find(); !errors.Is(err, ErrMissing) {
		t.Errorf("without Wireshark: %v", err)
	}
	t.Setenv("WIRESHARK", there)
	if got, err := Find(); got != there || err != nil {
		t.Errorf("by WIRESHARK: %q, %v", got, err)
	}
	t.Setenv("WIRESHARK", there+"-not")
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), "WIRESHARK") {
		t.Errorf("by a wrong WIRESHARK: %v", err)
	}
}

func TestUsualPlaces(t *testing.T) {
	getenv := func(name string) string { return map[string]string{"ProgramFiles": `C:\Program Files`}[name] }
	want := []string{`C:\Program Files\Wireshark\Wireshark.exe`}
	if diff := cmp.Diff(want, usualPlaces("windows", getenv)); diff != "" {
		t.Errorf("on Windows (-want +got):\n%s", diff)
	}
	if usualPlaces("linux", getenv) != nil || len(usualPlaces("darwin", getenv)) != 1 {
		t.Error("the places on Linux or macOS are wrong")
	}
}

// What is written arrives at the program, which ends after the packets have.
func TestViewer(t *testing.T) {
	got := filepath.Join(t.TempDir(), "got")
	v, err := Start(program(t, `echo "$@" > `+got+`; cat >> `+got))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Write([]byte("packets")); err != nil {
		t.Error(err)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	await(t, v)
	if b, _ := os.ReadFile(got); string(b) != "-k -i -\npackets" {
		t.Errorf("the program got %q", b)
	}
}

// The end of the program is noticed without a write, and a failure has a reason.
func TestViewerEnds(t *testing.T) {
	v, err := Start(program(t, "exit 0"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, v)
	if _, err := v.Write([]byte("packets")); err == nil {
		t.Error("a write succeeds without a reader")
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if v, err = Start(program(t, "echo first >&2; echo no display >&2; exit 1")); err != nil {
		t.Fatal(err)
	}
	await(t, v)
	if err := v.Close(); err == nil || !strings.HasSuffix(err.Error(), "exit status 1: no display") {
		t.Errorf("the failure is %v", err)
	}
	if _, err := Start(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing program starts")
	}
}
