package main

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestState(t *testing.T) {
	l := layout{base: t.TempDir()}
	if _, err := readState(l); !errors.Is(err, errNotUp) {
		t.Errorf("state without a cluster: got error %v", err)
	}
	if err := l.makeRun(); err != nil {
		t.Fatal(err)
	}
	want := state{shape: shape{Nodes: 2}, Binaries: "/bin"}
	if err := want.write(l); err != nil {
		t.Fatal(err)
	}
	if _, err := completeState(l); !errors.Is(err, errNotUp) || !strings.Contains(err.Error(), "did not finish") {
		t.Errorf("state of a cluster that did not finish starting: got error %v", err)
	}
	want.Complete = true
	if err := want.write(l); err != nil {
		t.Fatal(err)
	}
	if got, err := completeState(l); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestDamagedState(t *testing.T) {
	l := layout{base: t.TempDir()}
	if err := l.makeRun(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.state(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(l); err == nil || !strings.Contains(err.Error(), "run `cluster down`") {
		t.Errorf("got %v", err)
	}
}

// TestKeysArePrivate makes sure that only the owner can read the cluster's keys.
func TestKeysArePrivate(t *testing.T) {
	l := layout{base: t.TempDir()}
	if err := l.makeRun(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(l.run())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of %s: %v, %v", l.run(), info.Mode(), err)
	}
}
