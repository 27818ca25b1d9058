package scc_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/scc"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

func TestBuild(t *testing.T) {
	cases := map[string]agentjob.Options{
		"privileged":         {Namespace: "sonde-system"},
		"capabilities":       {Namespace: "sonde-system", Privilege: privilege.Capabilities},
		"in-other-namespace": {Namespace: "elsewhere"},
	}
	for name, options := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(scc.Build(options).Object)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
			}
		})
	}
}

// TestNothingElseOfTheHost says in code what must not change with the golden files.
func TestNothingElseOfTheHost(t *testing.T) {
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		t.Run(string(setting), func(t *testing.T) {
			nothingElse(t, scc.Build(agentjob.Options{Namespace: "sonde-system", Privilege: setting}).Object)
		})
	}
}

func nothingElse(t *testing.T, o map[string]any) {
	t.Helper()
	for _, field := range []string{"allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPorts", "defaultAllowPrivilegeEscalation"} {
		if o[field] != false {
			t.Errorf("%s is %v", field, o[field])
		}
	}
	if diff := cmp.Diff([]any{"system:serviceaccount:sonde-system:sonde-probe"}, o["users"]); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	for _, field := range []string{"groups", "defaultAddCapabilities", "allowedUnsafeSysctls", "allowedFlexVolumes"} {
		if diff := cmp.Diff([]any{}, o[field]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	if p, ok := o["priority"].(int64); !ok || p >= 0 {
		t.Errorf("priority %v: would be preferred to constraints of the cluster's", o["priority"])
	}
}
