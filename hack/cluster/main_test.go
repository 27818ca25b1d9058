package main

import (
	"bytes"
	"os"
	"testing"
)

// TestCommands runs commands that need no cluster, or only its files.
func TestCommands(t *testing.T) {
	t.Setenv(instanceVariable, "")
	none := t.TempDir()
	up := layout{base: t.TempDir()}
	if err := up.makeRun(); err != nil {
		t.Fatal(err)
	}
	if err := (state{shape: shape{Nodes: 1}, Binaries: "/nowhere", Complete: true}).write(up); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args    []string
		want    string
		wantErr string
	}{
		"kubeconfig":            {args: []string{"--cache", up.base, "kubeconfig"}, want: up.kubeconfig() + "\n"},
		"audit log":             {args: []string{"--cache", up.base, "audit-log"}, want: up.auditLog() + "\n"},
		"kubeconfig of nothing": {args: []string{"--cache", none, "kubeconfig"}, wantErr: errNotUp.Error()},
		"load into nothing":     {args: []string{"--cache", none, "load", "x.tar"}, wantErr: errNotUp.Error()},
		"kubectl of nothing":    {args: []string{"--cache", none, "kubectl", "get", "--all-namespaces", "pods"}, wantErr: errNotUp.Error()},
		"kubectl gets its flags": {
			args:    []string{"--cache", up.base, "kubectl", "get", "--all-namespaces", "pods"},
			wantErr: "start /nowhere/kubectl: no such file or directory",
		},
		"another instance":   {args: []string{"--cache", up.base, "--instance", "1", "kubeconfig"}, wantErr: errNotUp.Error()},
		"no such instance":   {args: []string{"--instance", "10", "down"}, wantErr: "--instance 10: clusters are numbered 0 to 9"},
		"unknown node":       {args: []string{"--cache", up.base, "node-exec", "n7", "--", "ps"}, wantErr: `the cluster has no node "n7"`},
		"stop in nothing":    {args: []string{"--cache", none, "node-stop", "n1"}, wantErr: errNotUp.Error()},
		"stop no node":       {args: []string{"--cache", up.base, "node-stop", "n7"}, wantErr: `the cluster has no node "n7"`},
		"start no node":      {args: []string{"--cache", up.base, "node-start", "n7"}, wantErr: `the cluster has no node "n7"`},
		"stop in no cluster": {args: []string{"--cache", none, "api-stop"}, wantErr: errNotUp.Error()},
		"guest of nothing":   {args: []string{"--cache", none, "guest", "--", "true"}, wantErr: errNotUp.Error()},
		"unknown guest":      {args: []string{"--cache", up.base, "guest", "--", "/no/such"}, wantErr: "find the program to run: exec: \"/no/such\": stat /no/such: no such file or directory"},
		"unknown command":    {args: []string{"start"}, wantErr: `unknown command "start" for "cluster"`},
	} {
		t.Run(name, func(t *testing.T) {
			root := rootCommand()
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetArgs(tc.args)
			checkErr(t, root.ExecuteContext(t.Context()), tc.wantErr)
			if tc.wantErr == "" && out.String() != tc.want {
				t.Errorf("printed %q, want %q", out.String(), tc.want)
			}
		})
	}
}

func TestNumberOfNodes(t *testing.T) {
	for nodes, want := range map[int]string{0: "--nodes 0: a cluster has 1 to 3 nodes", 4: "--nodes 4: a cluster has 1 to 3 nodes"} {
		checkErr(t, runUp(t.Context(), layout{base: t.TempDir()}, newProgress(os.Stderr), shape{Nodes: nodes}), want)
	}
}

func TestInstanceFromTheEnvironment(t *testing.T) {
	for value, want := range map[string]int{"": 0, "3": 3, "three": -1} {
		t.Setenv(instanceVariable, value)
		if got := defaultInstance(); got != want {
			t.Errorf("%s=%q: instance %d, want %d", instanceVariable, value, got, want)
		}
	}
}
