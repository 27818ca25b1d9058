package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestKwokRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		want  string
	}{
		"no node":        {nodes: 0, want: "1 to 100"},
		"too many nodes": {nodes: 101, want: "1 to 100"},
		"no cluster":     {nodes: 1, want: "cluster up"},
	} {
		t.Run(name, func(t *testing.T) {
			err := runKwok(t.Context(), layout{base: t.TempDir()}, newProgress(io.Discard), tc.nodes)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if tc.want == "cluster up" && !errors.Is(err, errNotUp) {
				t.Errorf("got %v, want errNotUp", err)
			}
		})
	}
}
